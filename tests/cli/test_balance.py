import json

import pytest
from click.testing import CliRunner

from gimbalmq.balance import strategy_names
from gimbalmq.cli.balance import balance
from gimbalmq.core.allocation import base


@pytest.fixture(autouse=True)
def own_registry(monkeypatch):
    monkeypatch.setattr(base, "_registered", {})


def run(*arguments, text=""):
    return CliRunner().invoke(balance, arguments, input=text, catch_exceptions=False)


def ask(**question):
    line = {"strategy": "AVG", "queues": [["t", "a", 0], ["t", "a", 1]], "members": ["m"]}
    result = run("allocate", text=json.dumps(line | question))
    assert result.exit_code == 0
    (answer,) = result.stdout.splitlines()
    return json.loads(answer)


# ---- allocate


def test_the_answer_is_the_line_with_shares():
    question = {
        "strategy": "AVG",
        "options": {},
        "queues": [["t", "a", 0], ["t", "a", 1], ["t", "a", 2]],
        "members": ["c0", "c1"],
        "note": "kept",
    }
    assert ask(**question) == question | {"shares": [[0, 1], [2]]}


def test_indexes_are_those_of_the_lists_as_given():
    answer = ask(queues=[["t", "a", 2], ["t", "a", 0], ["t", "a", 1]], members=["c1", "c0"])
    assert answer["shares"] == [[0], [1, 2]]


def test_a_member_listed_twice_repeats_its_first_share():
    queues = [["t", "a", number] for number in range(6)]
    assert ask(queues=queues, members=["A", "A", "B"])["shares"] == [[0, 1], [0, 1], [4, 5]]


@pytest.mark.parametrize(
    ("strategy", "options", "queues", "members", "shares"),
    [
        ("CONSISTENT_HASH", {"virtual_nodes": 0}, [["t", "a", 0]], ["c"], [[]]),
        ("MACHINE_ROOM", {"rooms": ["r"]}, [["t", "r@a", 0], ["t", "a", 0]], ["c"], [[0]]),
        (
            "MACHINE_ROOM_NEARBY",
            {"inner": "AVG", "zone": "prefix:-"},
            [["t", "x-1", 0], ["t", "y-1", 0]],
            ["y-c", "x-c"],
            [[1], [0]],
        ),
        (
            "MACHINE_ROOM_NEARBY-CONFIG",
            {"zone": "prefix:_", "queues": {"x_c": [1, 0]}},
            [["t", "x_1", 0], ["t", "x_1", 1]],
            ["x_c"],
            [[1, 0]],
        ),
        ("CONFIG", {"queues": {"c": [1]}}, [["t", "a", 0], ["t", "a", 1]], ["c", "d"], [[1], []]),
    ],
)
def test_options_of_each_strategy(strategy, options, queues, members, shares):
    answer = ask(strategy=strategy, options=options, queues=queues, members=members)
    assert answer["shares"] == shares


@pytest.mark.parametrize(
    ("question", "message"),
    [
        ({"strategy": "ROUND"}, "unknown allocation strategy 'ROUND'"),
        ({"members": []}, "no members"),
        ({"queues": []}, "no queues"),
        ({"members": [""]}, "empty client id"),
        ({"queues": [["t", "a"]]}, "queues[0]"),
        ({"queues": [["t", "a", "1"]]}, "Expected `int`"),
        ({"queues": [["t", "a", 1], ["t", "a", 1]]}, "t/a/1 is listed twice"),
        ({"options": {"zone": "prefix:-"}}, "'AVG' has no option 'zone'"),
        ({"options": {"name": 1}}, "'AVG' has no option 'name'"),
        ({"strategy": "MACHINE_ROOM", "options": {"rooms": 3}}, "option rooms is 3"),
        ({"strategy": "MACHINE_ROOM_NEARBY-AVG", "options": {"zone": "a"}}, "option zone is 'a'"),
        ({"strategy": "CONFIG", "options": {"queues": {"m": [2]}}}, "the queue with index 2"),
        ({"strategy": "CONFIG", "options": {"queues": {"m": [-1]}}}, "the queue with index -1"),
        ({"strategy": "CONFIG", "options": {"queues": {"m": "0"}}}, "Expected `array`"),
        ({"strategy": "CONFIG", "options": {"queues": [0]}}, "option queues is a list"),
        ({"strategy": "CONFIG", "options": {"queues": {"z": []}}}, "'z', which is not a member"),
    ],
)
def test_a_line_that_cannot_be_answered_gives_an_error_in_its_place(question, message):
    answer = ask(**question)
    assert list(answer) == ["error"]
    assert answer["error"].startswith("line 1: ")
    assert message in answer["error"]


def test_each_line_has_its_own_answer():
    good = '{"strategy":"AVG","queues":[["t","a",0]],"members":["m"]}'
    result = run("allocate", text=f"{good}\n\n{{no json\n5\n{good}\n")
    answers = [json.loads(line) for line in result.stdout.splitlines()]
    assert "shares" in answers[0]
    assert answers[1]["error"].startswith("line 3: ")
    assert answers[2]["error"].startswith("line 4: ")
    assert answers[3] == answers[0]


def test_names_in_any_script_and_half_surrogates_come_back_as_they_went_in():
    line = r'{"strategy":"AVG","queues":[["t","工",0]],"members":["\ud800é"]}'
    result = run("allocate", text=line + "\n")
    assert json.loads(result.stdout)["members"] == ["\ud800é"]
    assert "工" in result.stdout


def test_bytes_that_are_no_text_are_an_error_of_their_line():
    result = CliRunner().invoke(balance, ["allocate"], input=b'{"strategy":"\xff"}\n')
    assert "error" in json.loads(result.stdout)


# ---- simulate


def simulate(*arguments):
    result = run("simulate", *arguments, "--json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert list(document) == (["steps", "weights"] if "--weights" in arguments else ["steps"])
    return document["steps"]


def test_one_step_for_each_event_and_strategy():
    steps = simulate("--queues", "64", "--members", "8", "--then", "+1,-1")
    names = [name for name in strategy_names() if name != "CONFIG"]
    names[names.index("MACHINE_ROOM_NEARBY")] = "MACHINE_ROOM_NEARBY-AVG"
    assert [(step["event"], step["strategy"]) for step in steps] == [
        (event, name) for event in ("+1", "-1") for name in names
    ]
    fields = ["event", "strategy", "moves", "least_moves", "spread", "fairness", "pause_s"]
    assert all(list(step) == fields for step in steps)


def test_a_join_under_avg_moves_many_times_the_least():
    (step,) = simulate("--queues", "256", "--members", "15", "--then", "+1", "--strategy", "AVG")
    assert (step["moves"], step["least_moves"], step["spread"]) == (135, 16, 0)
    assert step["fairness"] == pytest.approx(1.0)


def test_a_join_under_consistent_hash_moves_no_more_than_the_newcomer_gets():
    (step,) = simulate(
        "--queues", "64", "--members", "4", "--then", "+1", "--strategy", "CONSISTENT_HASH"
    )
    assert step["moves"] < 64 / 2
    assert step["spread"] > 1


def test_a_topic_that_grows_moves_nothing_under_circles_of_one_broker_and_much_under_avg():
    growing = ["--queues", "64", "--members", "8", "--brokers", "1", "--then", "queues+8"]
    names = "AVG,AVG_BY_CIRCLE,CAPPED_HASH"
    steps = {one["strategy"]: one for one in simulate(*growing, "--strategy", names)}
    assert {one["least_moves"] for one in steps.values()} == {0}
    assert {one["event"] for one in steps.values()} == {"queues+8"}
    assert steps["AVG_BY_CIRCLE"]["moves"] == 0
    assert 0 < steps["CAPPED_HASH"]["moves"] < steps["AVG"]["moves"]
    assert (steps["CAPPED_HASH"]["spread"], steps["AVG"]["spread"]) == (0, 0)


def test_new_queues_go_where_there_are_fewest_and_later_events_see_them():
    small = ["--queues", "3", "--members", "1", "--rooms", "1"]
    grown = simulate(*small, "--then", "queues+3,+5", "--strategy", "AVG")
    assert [one["event"] for one in grown] == ["queues+3", "+5"]
    assert [one["spread"] for one in grown] == [0, 0], "six queues for six members"


def test_the_seed_decides_who_leaves():
    arguments = ("--queues", "97", "--members", "9", "--then", "-3,-2", "--strategy", "AVG")
    assert simulate(*arguments) == simulate(*arguments, "--seed", "0")
    others = [simulate(*arguments, "--seed", str(seed)) for seed in range(1, 6)]
    assert any(steps != simulate(*arguments) for steps in others)


def test_without_events_the_start_is_measured():
    (step,) = simulate("--queues", "7", "--members", "3", "--strategy", "AVG")
    assert (step["event"], step["moves"], step["spread"]) == ("start", 0, 1)


def test_rooms_and_brokers_can_be_chosen():
    arguments = ("--queues", "30", "--members", "4", "--strategy", "MACHINE_ROOM_NEARBY-AVG")
    (one_room,) = simulate(*arguments, "--rooms", "1")
    (two_rooms,) = simulate(*arguments, "--rooms", "3", "--brokers", "3")
    assert one_room["spread"] == 1
    assert two_rooms["spread"] == 5


def test_without_json_there_is_a_table():
    result = run("simulate", "--queues", "64", "--members", "8", "--then", "+1,-1")
    assert result.exit_code == 0
    for word in ("least moves", "AVG_BY_CIRCLE", "+1", "-1", "64 queues"):
        assert word in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--then", "1"], "'1' is not an event"),
        (["--then", "+0"], "'+0' is not an event"),
        (["--then", "-2"], "only 2 members are left"),
        (["--strategy", "ROUND"], "unknown allocation strategy 'ROUND'"),
        (["--strategy", "CONFIG"], "nothing to simulate for CONFIG"),
        (["--strategy", ","], "name some of"),
        (["--queues", "0"], "--queues"),
    ],
)
def test_wrong_use_ends_with_exit_code_2(arguments, message):
    result = run("simulate", "--queues", "8", "--members", "2", *arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())


def test_a_strategy_that_cannot_do_without_options_is_left_out_of_all():
    class Needy:
        name = "NEEDY"

        def __init__(self, *, size):
            self.size = size

        def allocate(self, snapshot):
            return {}

    base.register(Needy)
    result = run("simulate", "--queues", "8", "--members", "2", "--json")
    assert "NEEDY" not in result.stdout
    assert "left out: strategy 'NEEDY' needs the option 'size'" in result.stderr
    assert run("simulate", "--queues", "8", "--members", "2", "--strategy", "NEEDY").exit_code == 2


def test_a_rolling_restart_adds_up_and_ends_where_it_began():
    arguments = ["--queues", "64", "--members", "8", "--strategy", "AVG,CAPPED_HASH"]
    avg, capped = simulate(*arguments, "--then", "restart")
    assert (avg["event"], avg["spread"], capped["spread"]) == ("restart", 0, 0)
    # Every member gives its 8 queues away and gets as many back: nothing less is possible.
    assert capped["least_moves"] == 128
    assert capped["least_moves"] <= capped["moves"] < avg["moves"]
    assert run("simulate", "--queues", "4", "--members", "1", "--then", "restart").exit_code == 2


def test_the_pause_is_what_moves_cost():
    arguments = ["--queues", "64", "--members", "8", "--strategy", "AVG", "--then", "+1"]
    (step,) = simulate(*arguments, "--hand-over-s", "0.5")
    assert step["pause_s"] == step["moves"] * 0.5


def test_weights_come_from_a_file(tmp_path):
    arguments = ["--queues", "8", "--members", "2", "--strategy", "WEIGHTED"]
    file = tmp_path / "weights.json"
    file.write_text('{"weights": {"simulated/room1@broker-000/0": 100}}')
    (even,), (weighted,) = simulate(*arguments), simulate(*arguments, "--weights", str(file))
    assert even["spread"] == 0
    assert weighted["spread"] == 6, "the heavy queue stands alone"
    file.write_text('{"weights": {"orders/broker-a/0": 100}}')
    said = run("simulate", *arguments, "--weights", str(file))
    assert "1 of its queues are not there, such as orders/broker-a/0" in said.stdout
    file.write_text('{"weights": {"simulated/room1@broker-000/0": -4}}')
    refused = run("simulate", *arguments[:4], "--weights", str(file))
    assert (refused.exit_code, "Invalid value for --weights" in refused.output) == (2, True)
    file.write_text('["no"]')
    result = run("simulate", *arguments, "--weights", str(file))
    assert (result.exit_code, "weights" in result.output) == (2, True)


@pytest.mark.parametrize(
    "arguments", [["--queues", "8"], ["--group", "g", "--queues", "8"], ["--members", "2"]]
)
def test_a_start_is_on_paper_or_a_running_group(arguments):
    result = run("simulate", *arguments)
    assert result.exit_code == 2
    assert "--group alone" in result.output


def test_the_picture_marks_the_least():
    result = run("simulate", "--queues", "64", "--members", "8", "--then", "+1")
    (line,) = [
        one for one in result.stdout.splitlines() if one.split()[:2] == ["+1", "CAPPED_HASH"]
    ]
    assert "|" in line
    assert line.endswith(" s")


@pytest.mark.parametrize("arguments", [[], ["allocate"], ["simulate"]])
def test_help_teaches_with_examples(arguments):
    result = run(*arguments, "--help")
    assert result.exit_code == 0
    assert "gimbalmq balance" in result.stdout
