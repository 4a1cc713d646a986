"""What a member says to its cluster, and what it makes of the answers, in virtual time."""

import queue

import pytest

from gimbalmq.core.consumer.events import Consumed, StopRequested
from gimbalmq.errors import AccessDeniedError, GimbalError
from gimbalmq.model.queue import MessageQueue
from gimbalmq.runtime.consumer_host import PullSettings
from gimbalmq.runtime.running import RunningWork
from gimbalmq.wire.bodies import (
    decode_consumer_status,
    decode_heartbeat,
    decode_lock,
    encode_reset_offsets,
)
from gimbalmq.wire.codes import RequestCode as R
from gimbalmq.wire.command import Command, response_to
from gimbalmq.wire.properties import parse_properties
from gimbalmq.wire.record import encode_record
from gimbalmq.wire.subscription import parse_tags
from runtime.fake_driver import SILENCE
from runtime.group_stage import GROUP, ME, RETRY, Brokers, Stage, broker_set, route

A, B = (MessageQueue("orders", f"broker-{name}", 0) for name in "ab")
ONEWAY = 2


def fail(stage, consume, delay_level=0):
    """The listener raises on the first message of what it got."""
    stage.host.finished(
        Consumed(consume.queue, consume.epoch, consume.batch, 0, 1, failures=((0, delay_level),))
    )


@pytest.fixture
def failed():
    """A stage on which a listener has got one message of queue A."""
    stage = Stage()
    stage.brokers.records[A] = [b"bad"]
    stage.start()
    (consume,) = stage.workers.got
    return stage, consume


# ---- slow and silent brokers ---------------------------------------------------------------------


@pytest.mark.rule("B2.1d")
def test_a_silent_broker_delays_neither_routes_nor_heartbeats_nor_commits_to_others():
    stage = Stage().start()
    assert stage.owned() >= {A, B}
    stage.brokers.silent.add("a:1")
    stage.driver.calls.clear()
    stage.driver.notified.clear()
    stage.driver.advance(60.0)
    assert (
        len([one for one in stage.of(R.GET_ROUTEINFO_BY_TOPIC) if one.fields["topic"] == "orders"])
        == 2
    )
    assert len(stage.of(R.HEART_BEAT, "b:1")) == 2
    commits = [
        one
        for one in stage.notified(R.UPDATE_CONSUMER_OFFSET, "b:1")
        if one.fields["topic"] == "orders"
    ]
    assert len(commits) == 12, "every five seconds"


@pytest.mark.rule("B10.26")
def test_pitfall_26_a_heartbeat_that_is_never_answered_blocks_none_that_follows():
    stage = Stage().start()
    stage.brokers.silent.add(("a:1", R.HEART_BEAT))
    stage.driver.calls.clear()
    stage.driver.advance(90.0)
    assert len(stage.of(R.HEART_BEAT, "a:1")) == len(stage.of(R.HEART_BEAT, "b:1")) == 3


# ---- joining -------------------------------------------------------------------------------------


@pytest.mark.rule("B2.5d")
def test_a_new_group_finds_its_retry_topic_right_after_its_first_heartbeat():
    stage = Stage()
    known = stage.brokers.routes.pop(RETRY)

    def beat(_address, request):
        stage.brokers.routes[RETRY] = known  # as brokers make it
        return response_to(request)

    stage.brokers.scripted[R.HEART_BEAT] = beat
    stage.start()
    assert {one.topic for one in stage.owned()} == {"orders", RETRY}
    assert stage.driver.at_s <= 1001.0, "Java waits for its route poll, 30 s"


@pytest.mark.rule("B2.5d")
def test_the_part_of_a_retry_topic_that_a_broker_makes_later_is_found_soon():
    stage = Stage()
    whole = stage.brokers.routes[RETRY]
    stage.brokers.routes[RETRY] = route(RETRY, whole.brokers[1])
    stage.start()
    assert MessageQueue(RETRY, "broker-b", 0) in stage.owned()
    stage.brokers.routes[RETRY] = whole
    stage.driver.advance(2.0)
    assert MessageQueue(RETRY, "broker-a", 0) in stage.owned()


def test_a_retry_topic_that_a_broker_never_makes_is_not_asked_for_without_end():
    stage = Stage()
    stage.brokers.routes[RETRY] = route(RETRY, stage.brokers.routes[RETRY].brokers[1])
    stage.start()
    stage.driver.advance(20.0)
    stage.driver.calls.clear()
    stage.driver.advance(30.0)
    assert (
        len([one for one in stage.of(R.GET_ROUTEINFO_BY_TOPIC) if one.fields["topic"] == RETRY])
        == 1
    )


@pytest.mark.rule("W6.4c")
def test_a_heartbeat_precedes_the_first_pull_and_names_the_same_version():
    stage = Stage().start()
    told = {}
    pulls = 0
    for address, command, _ in stage.driver.calls:
        if command.code == R.HEART_BEAT:
            for consumer in decode_heartbeat(command.body).consumers:
                told[address] = {one.topic: one.version_ms for one in consumer.subscriptions}
        elif command.code == R.PULL_MESSAGE:
            pulls += 1
            version = int(command.fields["subVersion"])
            assert version == told[address][command.fields["topic"]]
    assert pulls == 4


def test_keys_that_a_broker_refuses_end_the_start_and_the_membership():
    stage = Stage()
    refused = Command(16, flag=1, remark="check signature failed.")
    stage.brokers.scripted[R.HEART_BEAT] = lambda address, request: (
        refused if address == "b:1" else response_to(request)
    )
    outcome = []
    stage.instance.join(stage.host, outcome.append)
    (error,) = outcome
    assert isinstance(error, AccessDeniedError)
    assert "b:1 refused HEART_BEAT" in str(error)
    assert stage.of(R.UNREGISTER_CLIENT, "a:1"), "the other broker has let it in"
    stage.brokers.scripted.clear()
    stage.start()


def test_other_refusals_of_a_heartbeat_do_not_end_the_start():
    stage = Stage()
    stage.brokers.scripted[R.HEART_BEAT] = lambda _address, request: response_to(request, 1, "busy")
    stage.start()


# ---- changes that nobody tells of ----------------------------------------------------------------


@pytest.mark.rule("B9c")
def test_new_queues_are_pulled_within_the_route_interval_and_one_pass():
    stage = Stage().start()
    brokers = stage.brokers.routes["orders"].brokers
    stage.brokers.routes["orders"] = route("orders", *brokers, queues=3)
    stage.driver.calls.clear()
    stage.driver.advance(30.1)
    pulled = {
        (one.fields["bname"], one.fields["queueId"])
        for one in stage.of(R.PULL_MESSAGE)
        if one.fields["topic"] == "orders"
    }
    assert pulled == {(name, number) for name in ("broker-a", "broker-b") for number in "12"}


@pytest.mark.rule("B10.22")
def test_pitfall_22_a_member_that_a_broker_drops_without_a_word_is_noticed_by_the_next_pass():
    brokers = Brokers()
    brokers.members = [ME, "you@gmq1-AVG"]
    stage = Stage(brokers).start()
    assert len({A, B} & stage.owned()) == 1
    brokers.members = [ME]
    stage.driver.advance(20.1)
    assert stage.owned() >= {A, B}


# ---- to whom -------------------------------------------------------------------------------------


@pytest.mark.rule("W1.8")
def test_nobody_is_talked_to_but_the_addresses_of_the_route():
    stage = Stage(ordered=True).start()
    stage.driver.advance(40.0)
    talked_to = {address for address, _, _ in stage.driver.calls}
    talked_to |= {address for address, _ in stage.driver.notified}
    assert talked_to == {"n:1", "a:1", "b:1"}


@pytest.mark.rule("W2.0b", "W6.4a")
def test_every_request_to_a_broker_has_its_name_and_routes_are_asked_for_in_standard_json():
    stage = Stage(ordered=True)
    stage.brokers.records[A] = [b"x"]
    stage.start()
    stage.driver.advance(40.0)
    names = {"a:1": "broker-a", "b:1": "broker-b"}
    sent = [(address, one) for address, one, _ in stage.driver.calls] + stage.driver.notified
    assert len({one.code for _, one in sent}) >= 7
    for address, request in sent:
        if address == "n:1":
            assert request.fields["acceptStandardJsonOnly"] == "true"
        else:
            assert request.fields.get("bname") == names[address], request.code


@pytest.mark.rule("W6.4a")
def test_a_route_in_the_loose_json_of_old_releases_is_understood():
    stage = Stage()
    loose = (
        b'{"brokerDatas":[{"brokerAddrs":{0:"a:1"},"brokerName":"broker-a","cluster":"c"}],'
        b'"filterServerTable":{},"queueDatas":[{"brokerName":"broker-a","perm":6,'
        b'"readQueueNums":1,"topicSynFlag":0,"writeQueueNums":1}]}'
    )
    stage.brokers.scripted[R.GET_ROUTEINFO_BY_TOPIC] = lambda _address, request: response_to(
        request, body=loose
    )
    stage.start()
    assert A in stage.owned()


@pytest.mark.rule("B5.5a", "W5.11")
def test_offsets_are_asked_for_and_stored_at_the_master_only():
    stage = Stage(Brokers(broker_set("a", slave=True))).start()
    stage.driver.advance(10.0)
    assert A in stage.owned()
    assert stage.of(R.QUERY_CONSUMER_OFFSET, "a:1")
    commits = stage.notified(R.UPDATE_CONSUMER_OFFSET, "a:1")
    assert {one.fields["queueId"] for one in commits} == {"0"}
    asked = {one.code for address, one, _ in stage.driver.calls if address == "a-slave:1"}
    assert asked == {R.HEART_BEAT}
    assert not [one for address, one in stage.driver.notified if address == "a-slave:1"]


@pytest.mark.rule("W5.11")
def test_while_there_is_no_master_nothing_is_stored_and_nothing_new_is_owned():
    only_a = Brokers(broker_set("a", slave=True))
    stage = Stage(only_a).start()
    left = broker_set("a", slave=True, master=False)
    only_a.routes["orders"] = route("orders", left, queues=2)
    only_a.routes[RETRY] = route(RETRY, left)
    stage.driver.advance(30.1)
    stage.driver.notified.clear()
    stage.driver.calls.clear()
    stage.driver.advance(60.0)
    assert A in stage.owned(), "what it has it keeps reading, from the slave if that allows it"
    assert MessageQueue("orders", "broker-a", 1) not in stage.owned()
    assert not stage.driver.notified
    forbidden = {R.QUERY_CONSUMER_OFFSET, R.UPDATE_CONSUMER_OFFSET, R.LOCK_BATCH_MQ}
    assert not forbidden & {one.code for _, one, _ in stage.driver.calls}


@pytest.mark.rule("B2.10i")
def test_a_poller_takes_a_failed_read_of_its_offset_as_a_failure():
    stage = Stage(pulls=PullSettings(consume_type="CONSUME_ACTIVELY"), pull_idle_limit_s=None)
    stage.brokers.scripted[R.QUERY_CONSUMER_OFFSET] = lambda _address, one: response_to(one, 1)
    stage.start()
    assert not stage.owned()
    assert not stage.of(R.PULL_MESSAGE)
    stage.brokers.scripted.clear()
    stage.driver.advance(20.0)
    assert stage.owned() >= {A, B}, "it goes on trying"


# ---- locks ---------------------------------------------------------------------------------------


@pytest.mark.rule("B2.11a", "W2.6c", "W5.11")
def test_a_lock_is_asked_from_the_master_with_the_client_id_and_a_limit_of_one_second():
    stage = Stage(Brokers(broker_set("a", slave=True)), ordered=True).start()
    asked = [one for one in stage.driver.calls if one[1].code == R.LOCK_BATCH_MQ]
    assert {(address, limit_s) for address, _, limit_s in asked} == {("a:1", 1.0)}
    for _, request, _ in asked:
        body = decode_lock(request.body)
        assert (body.group, body.client_id) == (GROUP, ME)
    assert A in stage.owned()


@pytest.mark.rule("B2.11a")
@pytest.mark.parametrize(
    "answer",
    [
        lambda _address, _request: None,
        lambda _address, _request: SILENCE,
        lambda _address, request: response_to(request, 1, "no"),
    ],
    ids=["unreachable", "silent", "error"],
)
def test_a_lock_without_an_answer_is_refused(answer):
    stage = Stage(ordered=True)
    stage.brokers.scripted[R.LOCK_BATCH_MQ] = answer
    stage.start()
    assert not stage.owned()
    stage.brokers.scripted.clear()


@pytest.mark.rule("B2.11a")
def test_without_a_master_no_lock_is_asked_for_and_none_is_had():
    stage = Stage(Brokers(broker_set("a", slave=True, master=False)), ordered=True).start()
    assert not stage.of(R.LOCK_BATCH_MQ)
    assert not stage.owned()


def test_a_topic_that_is_subscribed_to_anew_has_a_newer_version_whatever_the_clock_says():
    """Brokers keep the subscription that they have unless what comes is newer."""
    stage = Stage().start()
    before = stage.instance.registrations.version("a:1", GROUP, "orders")
    stage.driver.at_s -= 60.0
    stage.host.subscribe(parse_tags("orders", "paid", stage.driver.now().wall_ms))
    assert stage.instance.registrations.version("a:1", GROUP, "orders") > before


@pytest.mark.rule("W2.6c")
def test_locks_are_given_back_with_the_client_id():
    stage = Stage(ordered=True).start()
    stage.host.unsubscribe("orders")
    unlocked = [decode_lock(one.body) for one in stage.of(R.UNLOCK_BATCH_MQ)]
    assert {(one.group, one.client_id) for one in unlocked} == {(GROUP, ME)}
    assert {one for body in unlocked for one in body.queues} == {A, B}


# ---- alarms --------------------------------------------------------------------------------------


class Alarm:
    """Counts how often it looks."""

    look_every_s = 1.0

    def __init__(self):
        self.looks = 0

    def look(self, _running, _now):
        self.looks += 1


def test_an_alarm_looks_from_the_beginning_to_the_end():
    stage, alarm = Stage(), Alarm()
    stage.host.watch(alarm)
    stage.start()  # takes a second
    stage.driver.advance(3.0)
    assert alarm.looks == 4
    stage.host.dispatch(StopRequested(0.0))
    stage.driver.advance(10.0)
    assert alarm.looks == 4


def test_the_alarms_of_a_member_that_could_not_join_never_look():
    stage, alarm = Stage(), Alarm()
    stage.host.watch(alarm)
    stage.brokers.down.add("n:1")
    outcome = []
    stage.instance.join(stage.host, outcome.append)
    assert isinstance(outcome[0], GimbalError)
    stage.driver.advance(10.0)
    assert alarm.looks == 0, "others may use the instance for long"


# ---- failed messages -----------------------------------------------------------------------------


def test_a_message_does_not_expire_because_of_those_before_it_in_the_same_run():
    stage = Stage(consume_timeout_s=15.0)
    stage.brokers.records[A] = [b"1", b"2", b"3"]
    stage.start()
    (consume,) = stage.workers.got
    work = RunningWork(consume, 0, 3, stage.driver.at_s)
    stage.workers.running = lambda: [work]
    for _message in work.parts():
        stage.driver.advance(10.0)
    assert not stage.of(R.CONSUMER_SEND_MSG_BACK)
    stage.driver.advance(10.0)  # the last of them hangs
    (sent,) = stage.of(R.CONSUMER_SEND_MSG_BACK)
    assert sent.fields["offset"] == "7002"


@pytest.mark.rule("B5.3a", "W2.3d", "W8a")
def test_a_send_back_names_the_message_by_its_place_in_the_commit_log(failed):
    stage, consume = failed
    fail(stage, consume)
    (sent,) = [one for one in stage.driver.calls if one[1].code == R.CONSUMER_SEND_MSG_BACK]
    address, request, limit_s = sent
    assert (address, limit_s) == ("a:1", 5.0)
    expected = {
        "group": GROUP,
        "originTopic": "orders",
        "offset": "7000",
        "delayLevel": "0",
        "originMsgId": "ID0",
        "maxReconsumeTimes": "16",
    }
    assert expected.items() <= request.fields.items()
    assert stage.host.machine.held[A].process.commit_offset == 1


@pytest.mark.rule("B5.3b")
@pytest.mark.parametrize("chosen", [0, 7], ids=["by its history", "chosen"])
def test_a_message_that_its_broker_does_not_take_back_is_sent_to_the_retry_topic(failed, chosen):
    stage, consume = failed
    stage.brokers.scripted[R.CONSUMER_SEND_MSG_BACK] = lambda _address, one: response_to(one, 1)
    fail(stage, consume, chosen)
    ((address, request, _),) = [
        one for one in stage.driver.calls if one[1].code == R.SEND_MESSAGE_V2
    ]
    assert (address, request.fields["n"]) == ("b:1", "broker-b"), "rather another broker"
    assert (request.fields["b"], request.fields["j"], request.fields["l"]) == (RETRY, "1", "16")
    assert bytes(request.body) == b"bad"
    wanted = {
        "RETRY_TOPIC": "orders",
        "RECONSUME_TIME": "1",
        "MAX_RECONSUME_TIMES": "16",
        "DELAY": str(chosen or 3),
        "UNIQ_KEY": "ID0",
    }
    properties = parse_properties(request.fields["i"])
    assert wanted.items() <= properties.items()
    assert properties["ORIGIN_MESSAGE_ID"]
    assert stage.host.machine.held[A].process.commit_offset == 1, "it is out of our hands"
    assert stage.host.machine.tally().retried == 1


@pytest.mark.rule("B5.3b")
def test_its_own_broker_may_take_as_new_what_it_does_not_take_back(failed):
    stage, consume = failed
    stage.brokers.down.add("b:1")
    stage.brokers.scripted[R.CONSUMER_SEND_MSG_BACK] = lambda _address, one: response_to(one, 1)
    fail(stage, consume)
    assert [one.fields["n"] for one in stage.of(R.SEND_MESSAGE_V2)] == ["broker-b", "broker-a"]
    assert stage.host.machine.held[A].process.commit_offset == 1


def test_a_message_that_was_given_up_is_buried_also_when_its_send_back_fails(failed):
    stage, consume = failed
    stage.brokers.scripted[R.CONSUMER_SEND_MSG_BACK] = lambda _address, one: response_to(one, 1)
    fail(stage, consume, -1)
    (request,) = stage.of(R.SEND_MESSAGE_V2)
    assert int(request.fields["j"]) > int(request.fields["l"]), "more attempts than allowed"


def test_a_message_that_nobody_takes_is_delivered_again_here(failed):
    stage, consume = failed
    for code in (R.CONSUMER_SEND_MSG_BACK, R.SEND_MESSAGE_V2):
        stage.brokers.scripted[code] = lambda _address, one: response_to(one, 1, "no")
    stage.workers.got.clear()
    fail(stage, consume)
    assert stage.host.machine.held[A].process.commit_offset == 0
    stage.driver.advance(5.1)
    (again,) = stage.workers.got
    assert (again.first, again.until) == (0, 1)


def test_a_group_with_locks_sends_nothing_to_its_retry_topic_by_itself():
    stage = Stage(lease=True)
    stage.brokers.records[A] = [b"bad"]
    stage.brokers.scripted[R.CONSUMER_SEND_MSG_BACK] = lambda _address, one: response_to(one, 1)
    stage.start()
    (consume,) = stage.workers.got
    fail(stage, consume)
    assert not stage.of(R.SEND_MESSAGE_V2), "a 5.x broker would bury it"


# ---- what brokers ask ----------------------------------------------------------------------------


@pytest.mark.rule("B5.6a")
def test_a_pushed_reset_drops_the_named_queues_sets_their_offsets_and_goes_on_there():
    stage = Stage().start()
    stage.driver.calls.clear()
    reset = Command(
        int(R.RESET_CONSUMER_CLIENT_OFFSET),
        {"topic": "orders", "group": GROUP, "timestamp": "0", "isForce": "true"},
        encode_reset_offsets({A: 5}),
        flag=ONEWAY,
    )
    assert stage.instance.on_request("a:1", reset) is None
    assert stage.brokers.offsets[A] == 5, "at once, and waited for"
    stage.driver.advance(1.0)
    (pull,) = stage.of(R.PULL_MESSAGE)
    assert (pull.fields["bname"], pull.fields["queueOffset"]) == ("broker-a", "5")
    assert stage.owned() >= {A, B}


@pytest.mark.rule("W2.6d", "W6.4b")
def test_questions_of_a_broker_are_answered():
    stage = Stage()
    stage.brokers.offsets[A] = 3
    stage.start()

    def ask(code, fields, body=b""):
        replies = []
        request = Command(int(code), fields, body, opaque=7)
        if not stage.host.on_request(request, replies.append):
            return stage.instance.on_request("a:1", request)
        (reply,) = replies
        return reply

    status = ask(R.GET_CONSUMER_STATUS_FROM_CLIENT, {"topic": "orders", "group": GROUP})
    assert decode_consumer_status(status.body).queues == {A: 3, B: 0}
    info = ask(R.GET_CONSUMER_RUNNING_INFO, {"consumerGroup": GROUP, "clientId": ME})
    assert info.code == 0
    assert b"mqTable" in bytes(info.body)
    for reply in (status, info):
        assert (reply.opaque, reply.is_response) == (7, True)
    nobody = ask(R.PUSH_REPLY_MESSAGE_TO_CLIENT, {"topic": "orders"})
    assert (nobody.code, nobody.opaque) == (3, 7), "nobody here has asked for a reply"


@pytest.mark.rule("W2.6d", "W6.4b")
def test_a_message_consumed_on_request_is_answered_also_without_a_listener():
    stage = Stage().start()
    replies = queue.SimpleQueue()
    body = encode_record(topic="orders", body=b"x")
    request = Command(int(R.CONSUME_MESSAGE_DIRECTLY), {"consumerGroup": GROUP}, body, opaque=7)
    assert stage.host.on_request(request, replies.put)
    reply = replies.get(timeout=20.0)
    assert b"CR_THROW_EXCEPTION" in bytes(reply.body)


@pytest.mark.rule("W6.4b")
@pytest.mark.parametrize(
    "request_",
    [
        Command(int(R.NOTIFY_CONSUMER_IDS_CHANGED), {"consumerGroup": GROUP}, flag=ONEWAY),
        Command(int(R.CHECK_TRANSACTION_STATE), {}, flag=ONEWAY),
        Command(9999, {}, flag=ONEWAY),
    ],
    ids=["members changed", "a check that makes no sense", "unknown"],
)
def test_one_way_requests_are_taken_in_and_not_answered(request_):
    stage = Stage().start()
    stage.driver.calls.clear()
    assert stage.instance.on_request("a:1", request_) is None
    stage.driver.advance(0.2)
    assert bool(stage.of(R.GET_CONSUMER_LIST_BY_GROUP)) == (
        request_.code == R.NOTIFY_CONSUMER_IDS_CHANGED
    )


# ---- pulls ---------------------------------------------------------------------------------------


@pytest.mark.rule("W6.4d")
def test_a_pull_outlives_the_time_for_which_a_broker_may_hold_it():
    stage = Stage().start()
    pulls = [one for one in stage.driver.calls if one[1].code == R.PULL_MESSAGE]
    for _, request, limit_s in pulls:
        assert limit_s >= int(request.fields["suspendTimeoutMillis"]) / 1000 + 15.0
