import pytest
from hypothesis import given
from hypothesis import strategies as st

from gimbalmq.core.identity import (
    Agreement,
    Capability,
    agreed_strategy,
    all_ours,
    allocation_members,
    capability,
    check_stem,
    check_strategy_name,
    default_stem,
    is_java_strategy,
    member_id,
    stem_of,
)
from gimbalmq.errors import ConfigurationError

JAVA_ID = "192.168.0.7@4711#812345678901234"
GOOD = st.text(min_size=1, max_size=30).filter(
    lambda text: text.isprintable() and " " not in text and "@gmq" not in text
)


@pytest.mark.rule("B8.6")
def test_an_id_is_stem_token_and_for_streams_a_suffix():
    assert member_id("billing-1", "AVG") == "billing-1@gmq1-AVG"
    assert member_id("10.0.0.7@1#x", "MACHINE_ROOM_NEARBY-AVG", stream=True) == (
        "10.0.0.7@1#x@gmq1-MACHINE_ROOM_NEARBY-AVG@STREAM"
    )


@given(
    stem=GOOD,
    strategy=GOOD.filter(lambda text: not {"@", "+"} & set(text)),
    stream=st.booleans(),
    waits=st.none() | st.integers(1, 3_600_000).map(lambda ms: ms / 1000),
)
def test_stem_strategy_and_grace_time_are_read_back_from_the_id(stem, strategy, stream, waits):
    client_id = member_id(stem, strategy, stream=stream, rejoin_grace_s=waits)
    assert capability(client_id) == Capability(1, strategy, waits)
    assert stem_of(client_id) == stem


def test_a_grace_time_takes_nothing_from_the_agreement_on_a_strategy():
    ids = ["a@gmq1-CAPPED_HASH+rejoin30", "b@gmq1-CAPPED_HASH"]
    assert agreed_strategy(ids, "CAPPED_HASH").strategy == "CAPPED_HASH"


@pytest.mark.parametrize(
    "client_id",
    [
        JAVA_ID,
        f"{JAVA_ID}@STREAM",
        "",
        "@gmq1-AVG",
        "a@gmq1-",
        "a@gmq-AVG",
        "a@gmq0-AVG",
        "a@gmq1-AVG@unit",
        "a@gmq1-AVG@STREAM@STREAM",
        "agmq1-AVG",
        "a@gmq1-AVG+rejoin",
        "a@gmq1-AVG+rejoin1e9",
    ],
)
def test_an_id_without_a_token_is_foreign_and_its_own_stem(client_id):
    assert capability(client_id) is None
    assert stem_of(client_id) == client_id


def test_a_token_of_a_later_version_is_read():
    assert capability("a@gmq12-AVG") == Capability(12, "AVG")


@pytest.mark.rule("B8.6")
def test_the_default_stem_looks_like_javas_and_has_a_random_part():
    assert default_stem("10.0.0.7", 42, "9f3a") == "10.0.0.7@42#9f3a"
    with pytest.raises(ConfigurationError):
        default_stem("10.0.0.7", 42, "a b")


@pytest.mark.parametrize(
    ("stem", "message"),
    [
        ("", "empty"),
        ("a b", "contains ' '"),
        ("a\tb", r"contains '\\t'"),
        ("a\x00", r"contains '\\x00'"),
        ("a\u2028b", r"contains '\\u2028'"),
        ("a\ud800", r"contains '\\ud800'"),
        ("a@gmq1-AVG", "give only the part before it"),
        ("a@gmq22-x", "give only the part before it"),
    ],
)
def test_stems_that_could_not_be_read_back_are_refused(stem, message):
    with pytest.raises(ConfigurationError, match=message):
        check_stem(stem)


def test_a_stem_may_have_at_signs_and_letters_of_any_script():
    check_stem("10.0.0.1@7#9@gmq@ünïcode-工")


@pytest.mark.parametrize("name", ["", "A@B", "A B", "A\nB"])
def test_strategy_names_that_could_not_be_read_back_are_refused(name):
    with pytest.raises(ConfigurationError, match="cannot be part of a client id"):
        check_strategy_name(name)
    with pytest.raises(ConfigurationError):
        member_id("a", name)


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("AVG", True),
        ("MACHINE_ROOM_NEARBY-CONSISTENT_HASH", True),
        ("MACHINE_ROOM_NEARBY-MACHINE_ROOM_NEARBY-AVG", True),
        ("CAPPED_HASH", False),
        ("MACHINE_ROOM_NEARBY-CAPPED_HASH", False),
    ],
)
def test_which_strategies_java_has(name, known):
    assert is_java_strategy(name) is known


@pytest.mark.parametrize("wanted", ["AVG", "CONSISTENT_HASH", "MACHINE_ROOM_NEARBY-AVG"])
def test_javas_strategies_need_no_agreement(wanted):
    assert agreed_strategy([JAVA_ID, "a@gmq1-CAPPED_HASH"], wanted) == Agreement(wanted)


def test_a_strategy_of_ours_is_used_when_every_member_runs_it():
    members = [member_id(stem, "CAPPED_HASH", stream=stem == "b") for stem in "abc"]
    assert agreed_strategy(members, "CAPPED_HASH") == Agreement("CAPPED_HASH")


@pytest.mark.rule("B10")
@pytest.mark.parametrize(
    ("other", "why"),
    [
        (JAVA_ID, f"member '{JAVA_ID}' does not say that it runs CAPPED_HASH"),
        ("b@gmq1-AVG", "member 'b@gmq1-AVG' runs AVG"),
        ("b@gmq2-CAPPED_HASH", "member 'b@gmq2-CAPPED_HASH' follows version 2"),
    ],
)
def test_one_member_that_does_not_run_it_makes_everyone_fall_back(other, why):
    agreement = agreed_strategy(["a@gmq1-CAPPED_HASH", other], "CAPPED_HASH")
    assert agreement.strategy == "AVG"
    assert why in agreement.reason
    assert "uses AVG instead of CAPPED_HASH" in agreement.reason


@pytest.mark.rule("B10")
def test_repeated_ids_are_left_out_only_where_every_member_does_so():
    ours = ["a@gmq1-AVG", "a@gmq1-AVG", "b@gmq1-AVG"]
    assert all_ours(ours)
    assert allocation_members(ours) == ("a@gmq1-AVG", "b@gmq1-AVG")
    mixed = [*ours, JAVA_ID]
    assert not all_ours(mixed)
    assert allocation_members(mixed) == tuple(mixed)
