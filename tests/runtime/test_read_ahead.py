"""Pulls that go out early: what is asked for when, and which answers are used."""

import contextlib

import pytest

from gimbalmq.core.consumer.effects import Pull
from gimbalmq.core.consumer.events import PullAnswered, PullFailed
from gimbalmq.core.flow_control import NO_ROOM, Room
from gimbalmq.errors import StateError, TransportError
from gimbalmq.flows.route import NameServers
from gimbalmq.model.message import PullStatus
from gimbalmq.model.queue import MessageQueue
from gimbalmq.model.route import BrokerSet, QueueData, TopicRoute
from gimbalmq.runtime.instance import ClientInstance, InstanceSettings
from gimbalmq.runtime.pull_calls import PullCalls, PullSettings
from gimbalmq.runtime.read_ahead import Budget, ReadAhead
from gimbalmq.wire.command import response_to
from gimbalmq.wire.record import encode_record
from gimbalmq.wire.subscription import parse_tags
from runtime.fake_driver import SILENCE, FakeDriver

QUEUE = MessageQueue("orders", "a", 0)
OTHER = MessageQueue("orders", "a", 1)
SUSPEND, COMMIT = 2, 1


class Stage:
    """A member whose pulls are answered when the test says so, and who asks on by itself."""

    def __init__(self, *, ahead=4, stored=1000, step=32, room=NO_ROOM):
        self.driver = FakeDriver(lambda _address, _command: SILENCE)
        self.driver.call = self._call
        self.stored = stored
        self.step = step
        self.room = room
        #: What is to be done after a reading, while one is under way.
        self.later = None
        self.driver.post = self._post
        #: Requests without an answer: offset, flags, committed offset and who waits.
        self.open = []
        self.events = []
        instance = ClientInstance("me", NameServers(["n:1"]), InstanceSettings())
        instance.driver = self.driver
        instance.routes.learn(
            TopicRoute("orders", (BrokerSet("a", "c", {0: "a:1"}),), (QueueData("a", 2, 2, 6),))
        )
        self.subscriptions = {"orders": parse_tags("orders", "*", 1)}
        settings = PullSettings(pulls_ahead=ahead)
        self.calls = PullCalls(
            instance, "billing", self.subscriptions, settings, self.events.append
        )

    def _call(self, _address, command, _timeout_s, done):
        self.open.append((command, done))

    def ask(self, offset, queue=QUEUE, epoch=1, commit=0):
        self.calls.pull(Pull(queue, epoch, offset, commit, self.room))

    def _post(self, action):
        if self.later is None:
            action()
        else:
            self.later.append(action)

    @contextlib.contextmanager
    def reading(self):
        """Answers that are read with one call."""
        self.later = []
        yield
        later, self.later = self.later, None
        for action in later:
            action()

    @property
    def asked(self):
        """The offsets that are on their way to the broker, in the order in which they left."""
        return [int(command.fields["queueOffset"]) for command, _done in self.open]

    def answer(self, offset, answer=None):
        """The broker has answered the pull at an offset, with messages unless something is given."""
        at = self.asked.index(offset)
        command, done = self.open.pop(at)
        done(self.found(command, offset) if answer is None else answer)

    def found(self, command, offset):
        until = min(offset + self.step, self.stored)
        records = [
            encode_record(topic="orders", body=b"x", queue_offset=number)
            for number in range(offset, until)
        ]
        fields = {
            "nextBeginOffset": str(until),
            "minOffset": "0",
            "maxOffset": str(self.stored),
            "suggestWhichBrokerId": "0",
        }
        return response_to(command, 0, fields=fields, body=b"".join(records))

    def warm(self, queue=QUEUE):
        """Two answers that advance by the same step, and the next pull."""
        for offset in (0, self.step):
            self.ask(offset, queue)
            self.answer(offset)
        self.ask(2 * self.step, queue)


def delivered(stage):
    return [event.offsets[0] for event in stage.events]


def test_once_answers_advance_evenly_the_next_are_asked_for_early():
    stage = Stage(ahead=4)
    stage.ask(0)
    assert stage.asked == [0]
    stage.answer(0)
    stage.ask(32)
    assert stage.asked == [32], "one answer does not show a step"
    stage.answer(32)
    stage.ask(64)
    assert stage.asked == [64, 96, 128, 160, 192]


def test_an_early_answer_is_handed_over_when_it_is_wanted_and_not_before():
    stage = Stage(ahead=2)
    stage.warm()
    stage.answer(96)
    assert delivered(stage) == [0, 32]
    stage.answer(64)
    assert delivered(stage) == [0, 32, 64]
    stage.ask(96)
    assert delivered(stage) == [0, 32, 64, 96]
    assert stage.asked == [128, 160], "its place is taken by the next"


def test_a_wanted_pull_that_is_on_its_way_is_not_sent_again():
    stage = Stage(ahead=2)
    stage.warm()
    stage.answer(64)
    stage.ask(96)
    assert stage.asked == [96, 128]
    assert delivered(stage) == [0, 32, 64]
    stage.answer(96)
    assert delivered(stage) == [0, 32, 64, 96]


def test_nothing_is_asked_for_early_that_may_not_be_there():
    stage = Stage(ahead=8, stored=150)
    stage.warm()
    assert stage.asked == [64, 96], "at 128 there are fewer than a whole step"
    waits, early = stage.open
    assert int(waits[0].fields["sysFlag"]) & SUSPEND
    assert not int(early[0].fields["sysFlag"]) & SUSPEND


def test_an_offset_that_was_not_foreseen_makes_early_answers_useless():
    stage = Stage(ahead=2)
    stage.warm()
    stage.answer(96)
    stage.ask(500)
    assert delivered(stage) == [0, 32]
    assert 500 in stage.asked
    stage.answer(128)  # on its way when it became useless
    assert delivered(stage) == [0, 32]


def test_uneven_answers_end_it():
    stage = Stage(ahead=2)
    stage.warm()
    stage.step = 7  # long messages, or a filter
    stage.answer(64)
    stage.ask(71)
    assert stage.asked[-1] == 71, "nothing behind it"
    assert stage.calls._budget.left == 2


@pytest.mark.parametrize("bad", ["no messages", "gone"])
def test_an_early_pull_that_failed_is_asked_anew(bad):
    stage = Stage(ahead=1)
    stage.warm()
    stage.answer(64)
    answer = TransportError("gone") if bad == "gone" else response_to(stage.open[0][0], 19)
    stage.answer(96, answer)
    assert delivered(stage) == [0, 32, 64]
    stage.ask(96)
    assert 96 in stage.asked
    assert not any(isinstance(event, PullFailed) for event in stage.events)
    stage.answer(96)
    assert delivered(stage) == [0, 32, 64, 96]


def test_an_early_pull_that_fails_while_it_is_wanted_is_asked_anew():
    stage = Stage(ahead=1)
    stage.warm()
    stage.answer(64)
    stage.ask(96)
    stage.answer(96, TransportError("gone"))
    assert stage.asked.count(96) == 1
    stage.answer(96)
    assert delivered(stage) == [0, 32, 64, 96]


MOVED = {"nextBeginOffset": "5", "minOffset": "0", "maxOffset": "0", "suggestWhichBrokerId": "0"}


@pytest.mark.parametrize("dropped", [False, True])
def test_an_early_pull_that_is_told_of_new_offsets_passes_that_on(dropped):
    """A 5.x broker tells one pull only that an operator has moved the group's offset."""
    stage = Stage(ahead=2)
    stage.warm()
    if dropped:
        stage.ask(500)
    stage.answer(96, response_to(stage.open[0][0], 21, fields=MOVED))
    assert delivered(stage) == [0, 32]
    stage.ask(64)
    assert stage.events[-1] == PullAnswered(QUEUE, 1, PullStatus.OFFSET_ILLEGAL, 5, maximum=0)
    stage.ask(5)
    assert stage.asked[-1] == 5


@pytest.mark.parametrize("told", ["before", "after"])
def test_what_an_early_pull_is_told_of_new_offsets_outlives_the_subscription(told):
    """Each change of the group's queues makes a new version of it, and the broker tells once."""
    stage = Stage(ahead=2)
    stage.warm()
    stage.answer(64)
    moved = response_to(stage.open[0][0], 21, fields=MOVED)
    if told == "before":
        stage.answer(96, moved)
    stage.subscriptions["orders"] = parse_tags("orders", "*", 2)
    stage.ask(96)
    if told == "after":
        stage.answer(96, moved)
        stage.answer(96)
        stage.ask(128)
    assert stage.events[-1] == PullAnswered(QUEUE, 1, PullStatus.OFFSET_ILLEGAL, 5, maximum=0)


def test_what_an_early_pull_is_told_of_new_offsets_ends_with_the_acquisition():
    stage = Stage(ahead=2)
    stage.warm()
    stage.answer(96, response_to(stage.open[0][0], 21, fields=MOVED))
    stage.ask(7, epoch=2)  # where the user wants it to be read
    assert stage.asked[-1] == 7
    assert delivered(stage) == [0, 32]


def test_a_wanted_early_pull_that_is_told_of_new_offsets_passes_that_on_at_once():
    stage = Stage(ahead=1)
    stage.warm()
    stage.answer(64)
    stage.ask(96)
    stage.answer(96, response_to(stage.open[0][0], 21, fields=MOVED))
    assert stage.events[-1] == PullAnswered(QUEUE, 1, PullStatus.OFFSET_ILLEGAL, 5, maximum=0)


def test_an_early_pull_that_fails_after_its_topic_was_unsubscribed_is_not_asked_anew():
    stage = Stage(ahead=1)
    stage.warm()
    stage.answer(64)
    stage.ask(96)
    del stage.subscriptions["orders"]
    stage.answer(96, TransportError("gone"))
    assert stage.asked == []


def test_what_is_read_ahead_ends_with_the_queue():
    stage = Stage(ahead=2)
    stage.warm()
    stage.answer(96)
    stage.calls.forget(QUEUE)
    stage.answer(128)
    assert stage.calls._budget.left == 2
    stage.ask(96, epoch=2)
    assert delivered(stage) == [0, 32], "not what an earlier acquisition had read"


def test_what_is_read_ahead_ends_with_the_subscription():
    stage = Stage(ahead=2)
    stage.warm()
    stage.answer(64)
    stage.answer(96)
    stage.subscriptions["orders"] = parse_tags("orders", "paid", 2)
    stage.ask(96)
    assert delivered(stage) == [0, 32, 64]
    assert stage.asked[-1] == 96


def test_an_early_answer_by_an_earlier_expression_is_asked_for_again():
    stage = Stage(ahead=2)
    stage.warm()
    stage.answer(64)
    stage.ask(96)
    stage.subscriptions["orders"] = parse_tags("orders", "paid", 2)
    stage.answer(96)
    assert delivered(stage) == [0, 32, 64]
    assert stage.asked.count(96) == 1


def test_queues_share_what_a_member_may_ask_for_early():
    stage = Stage(ahead=4)
    stage.warm(QUEUE)
    assert stage.asked == [64, 96, 128, 160, 192]
    stage.warm(OTHER)
    assert stage.asked.count(96) == 1, "all is taken"
    for offset in (64, 96, 128):
        stage.answer(offset)
        stage.ask(offset + 32)
    early = [command for command, _done in stage.open if not int(command.fields["sysFlag"])]
    assert {int(command.fields["queueId"]) for command in early} == {0}
    stage.open.reverse()  # the other queue's
    stage.answer(64)
    stage.ask(96, OTHER)
    early = [
        int(command.fields["queueId"])
        for command, _ in stage.open
        if command.fields["sysFlag"] == "0"
    ]
    assert early.count(1) == 2


@pytest.mark.parametrize(
    ("most", "queues", "part"), [(32, 1, 32), (32, 8, 4), (32, 9, 4), (32, 40, 1), (0, 3, 0)]
)
def test_a_queue_with_little_to_read_takes_next_to_nothing_from_the_others(most, queues, part):
    budget = Budget(most)
    budget.share(queues)
    assert (budget.part, budget.left) == (part, most)


def test_all_queues_together_keep_to_what_a_member_may_ask_for_early():
    budget = Budget(5)
    budget.share(3)
    subscription = parse_tags("orders", "*", 1)
    lanes = [ReadAhead(1, subscription, budget) for _ in range(3)]
    for lane in lanes:
        lane.learn(0, 32, 1000)
        lane.learn(32, 64, 1000)
    assert [len(lane.further(Pull(QUEUE, 1, 64, 0))) for lane in lanes] == [2, 2, 1]


def test_an_offset_to_commit_rides_along_with_what_is_sent():
    stage = Stage(ahead=1)
    stage.warm()
    stage.answer(64)
    stage.answer(96)
    stage.ask(96, commit=50)
    (command, _done) = stage.open[-1]
    assert (command.fields["queueOffset"], command.fields["commitOffset"]) == ("128", "50")
    assert int(command.fields["sysFlag"]) == COMMIT


def test_it_can_be_turned_off():
    stage = Stage(ahead=0)
    stage.warm()
    assert stage.asked == [64]


def test_an_answer_without_messages_shows_no_step():
    stage = Stage(ahead=2)
    stage.warm()
    stage.answer(64, response_to(stage.open[0][0], 19, fields={
        "nextBeginOffset": "64", "minOffset": "0", "maxOffset": "1000", "suggestWhichBrokerId": "0",
    }))  # fmt: skip
    assert stage.events[-1] == PullAnswered(QUEUE, 1, PullStatus.NO_NEW_MESSAGE, 64, maximum=1000)
    stage.ask(64)
    assert stage.asked[-1] == 64


# ---- answers that come together ------------------------------------------------------------------

MIB = 1 << 20


def waiting_at_96(ahead=4):
    """A member that waits for an early pull, with room for those behind it."""
    stage = Stage(ahead=ahead, room=Room(1000, MIB))
    stage.warm()
    stage.answer(64)
    stage.ask(96)
    return stage


def offsets_of(event):
    return event.offsets[0], event.offsets[-1] + 1


def test_answers_that_follow_each_other_are_handed_over_together():
    stage = waiting_at_96()
    assert stage.asked == [96, 128, 160, 192]
    with stage.reading():
        for offset in (128, 96, 192):
            stage.answer(offset)
        assert delivered(stage) == [0, 32, 64], "not before all is read"
    event = stage.events[-1]
    assert offsets_of(event) == (96, 160), "the answer at 160 is missing"
    assert [message.queue_offset for message in event.messages] == list(range(96, 160))
    assert (event.next_offset, event.maximum) == (160, 1000)
    one = encode_record(topic="orders", body=b"x", queue_offset=0)
    assert event.body_bytes == 64 * len(one)
    stage.ask(160)
    assert stage.asked == [160, 224, 256], "as many more as were handed over"
    stage.answer(160)
    assert offsets_of(stage.events[-1]) == (160, 224), "what came before brings what waited for it"


def test_an_answer_that_is_wanted_when_it_is_here_brings_those_behind_it():
    stage = Stage(ahead=4, room=Room(1000, MIB))
    stage.warm()
    for offset in (96, 128, 160, 64):
        stage.answer(offset)
    assert offsets_of(stage.events[-1]) == (64, 192)


@pytest.mark.parametrize(
    ("room", "until"),
    [
        (Room(31, MIB), 96),
        (Room(32, MIB), 128),
        (Room(63, MIB), 128),
        (Room(64, MIB), 160),
        (Room(1000, 0), 96),
        (NO_ROOM, 96),
    ],
)
def test_no_more_comes_together_than_there_is_room_for(room, until):
    stage = Stage(ahead=4, room=room)
    stage.warm()
    with stage.reading():
        for offset in (96, 128, 160, 64):
            stage.answer(offset)
    assert offsets_of(stage.events[-1]) == (64, until)
    if until < 192:
        stage.ask(until)
        assert stage.events[-1].offsets[0] == until, "what was left over comes next, at once"


def test_a_queue_that_is_given_up_while_answers_are_read_gets_nothing():
    stage = waiting_at_96(ahead=2)
    with stage.reading():
        stage.answer(96)
        stage.calls.forget(QUEUE)
    assert delivered(stage) == [0, 32, 64]
    assert stage.calls._budget.left == 2


def test_an_error_is_passed_on_although_the_driver_takes_no_orders_any_more():
    stage = waiting_at_96()

    def closed(_action):
        raise StateError("stopped")

    stage.driver.post = closed
    stage.answer(96, TransportError("gone"))
    assert 96 in stage.asked, "asked anew, which fails by itself"


def test_an_unreadable_answer_ends_what_comes_together_and_is_told_by_itself():
    stage = waiting_at_96()
    with stage.reading():
        stage.answer(96)
        fields = stage.found(stage.open[0][0], 128).fields
        stage.answer(128, response_to(stage.open[0][0], 0, fields=fields, body=b"rubbish" * 20))
    assert offsets_of(stage.events[-1]) == (96, 128)
    stage.ask(128)
    assert isinstance(stage.events[-1], PullFailed)
    assert "unreadable" in stage.events[-1].reason


def test_a_failed_answer_among_others_is_asked_for_anew_when_it_is_wanted():
    stage = waiting_at_96()
    with stage.reading():
        stage.answer(96)
        stage.answer(128, TransportError("gone"))
        stage.answer(160)
    assert offsets_of(stage.events[-1]) == (96, 128)
    stage.ask(128)
    assert 128 in stage.asked


def test_a_record_that_begins_before_what_was_asked_for_repeats_nothing():
    stage = Stage(ahead=2, room=Room(1000, MIB))
    stage.warm()
    with stage.reading():
        fields = stage.found(stage.open[1][0], 96).fields
        records = b"".join(
            encode_record(topic="orders", body=b"x", queue_offset=number)
            for number in range(94, 128)
        )
        stage.answer(96, response_to(stage.open[1][0], 0, fields=fields, body=records))
        stage.answer(64)
    assert list(stage.events[-1].offsets) == list(range(64, 128))
