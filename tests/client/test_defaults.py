"""Options that Java has, too, have Java's defaults, except for those that are better otherwise."""

import inspect
import tomllib
from pathlib import Path

import msgspec
import pytest

from client.small_cluster import SmallCluster
from gimbalmq import FaultTolerance, LitePullConsumer, Producer, PullConsumer, PushConsumer
from gimbalmq.client.access import AccessOptions
from gimbalmq.client.options import SETTINGS
from gimbalmq.core.consumer.settings import ConsumerSettings
from gimbalmq.transport.reach import Reach
from waiting import eventually

CONFORMANCE = Path(__file__).parents[2] / "docs" / "conformance.toml"

#: The tables of Java's options and of what bounds convergence, row by row: Java's name, the option
#: that stands for it, and Java's default; times in seconds, sizes in MiB.
COMMON = {
    "namesrvAddr": ("nameserver", None),
    "pollNameServerInterval": ("poll_name_server_interval_s", 30.0),
    "heartbeatBrokerInterval": ("heartbeat_broker_interval_s", 30.0),
    "mqClientApiTimeout": ("mq_client_api_timeout_s", 3.0),
    "connect timeout": ("connect_timeout_s", 3.0),
}
MEMBERS = {
    **COMMON,
    "allocateMessageQueueStrategy": ("allocation", "AVG"),
    "useHeartbeatV2": ("use_heartbeat_v2", False),
    "rebalance timer": ("rebalance_interval_s", 20.0),
    "rebalance minimum gap": ("rebalance_min_interval_s", 1.0),
    "unbalanced retry": ("rebalance_retry_s", 1.0),
    "offset timeout": ("offset_timeout_s", 5.0),
}
FETCHING = {
    **MEMBERS,
    "consumeFromWhere, consumeTimestamp": ("start_from", "last"),
    "pullTimeDelayMillsWhenException": ("pull_time_delay_when_exception_s", 1.0),
    "pull delay when a broker refuses": ("pull_time_delay_when_flow_control_s", 0.02),
    "pullThresholdForQueue": ("pull_threshold_for_queue", 1000),
    "pullThresholdSizeForQueue": ("pull_threshold_size_for_queue", 100),
    "consumerTimeoutMillisWhenSuspend": ("consumer_timeout_when_suspend_s", 30.0),
}
JAVA = {
    PushConsumer: {
        **FETCHING,
        "messageModel": ("broadcasting", False),
        "consumeThreadMin, consumeThreadMax": ("workers", 20),
        "consumeConcurrentlyMaxSpan": ("consume_concurrently_max_span", 2000),
        "pullThresholdForTopic": ("pull_threshold_for_topic", -1),
        "pullThresholdSizeForTopic": ("pull_threshold_size_for_topic", -1),
        "pullInterval": ("pull_interval_s", 0.0),
        "consumeMessageBatchMaxSize": ("batch_size", 1),
        "pullBatchSize": ("pull_batch_size", 32),
        "long poll": ("broker_suspend_max_time_s", 15.0),
        "persistConsumerOffsetInterval": ("persist_consumer_offset_interval_s", 5.0),
        "maxReconsumeTimes": ("max_reconsume_times", -1),
        "suspendCurrentQueueTimeMillis": ("suspend_current_queue_time_s", 1.0),
        "consumeTimeout": ("consume_timeout_s", 15 * 60.0),
        "pull expiry": ("pull_idle_limit_s", 120.0),
        "redelivery after a failed send-back": ("redeliver_s", 5.0),
        "relock": ("lock_renew_s", 20.0),
        "client lock life": ("lock_trust_s", 30.0),
        "lock retry": ("lock_retry_s", 0.5),
        "lock timeout": ("lock_timeout_s", 1.0),
        "forced release": ("release_drain_s", 20.0),
    },
    LitePullConsumer: {
        **FETCHING,
        "autoCommit": ("auto_commit", True),
        "autoCommitIntervalMillis": ("auto_commit_interval_s", 5.0),
        "pullBatchSize": ("pull_batch_size", 10),
        "pullThresholdForAll": ("pull_threshold_for_all", 10_000),
        "consumeMaxSpan": ("consume_max_span", 2000),
        "brokerSuspendMaxTimeMillis": ("broker_suspend_max_time_s", 20.0),
    },
    PullConsumer: {
        **MEMBERS,
        "pullThreadNums": ("pull_thread_nums", 20),
        "consumerPullTimeoutMillis": ("consumer_pull_timeout_s", 10.0),
    },
    Producer: {
        **COMMON,
        "sendMsgTimeout": ("timeout_s", 3.0),
        "retryTimesWhenSendFailed": ("retries", 2),
        "retryTimesWhenSendAsyncFailed": ("retry_times_when_send_async_failed", 2),
        "sendLatencyEnable": ("fault_tolerance", False),
        "maxMessageSize": ("max_message_size", 4 << 20),
        "compressMsgBodyOverHowmuch": ("compress_msg_body_over_howmuch", 4096),
        "compressLevel": ("compress_level", 5),
        "retryAnotherBrokerWhenNotStoreOK": ("retry_another_broker_when_not_store_ok", False),
        "createTopicKey": ("create_topic_key", "TBW102"),
        "defaultTopicQueueNums": ("default_topic_queue_nums", 4),
        "enableTrace": ("enable_trace", False),
    },
    FaultTolerance: {
        "startDetectorEnable": ("detector", False),
        "detectInterval": ("detect_interval_s", 2.0),
        "detectTimeout": ("detect_timeout_s", 0.2),
    },
}
#: Options whose default is better than Java's, and why that is stated in docs/conformance.toml.
BETTER = {
    "rebalance_min_interval_s": 0.05,
    "rebalance_retry_s": 0.2,
    "lock_renew_s": 1.0,
    "lock_trust_s": 3.0,
    "lock_retry_s": 0.1,
    "release_drain_s": 10.0,
}
#: Rows of the tables that are no option; the reasons are in docs/conformance.toml.
NONE = [
    "clientIP", "instanceName", "unitName", "enableHeartbeatChannelEventListener",
    "vipChannelEnabled", "channel idle", "close socket on sync timeout", "pullBatchSizeInBytes",
    "postSubscriptionWhenPull", "awaitTerminationMillisWhenShutdown",
    "adjustThreadPoolNumsThreshold", "pollTimeoutMillis", "topicMetadataCheckIntervalMillis",
    "enableRebalance", "registerTopics", "pull dispatch delay",
]  # fmt: skip
RULES = {
    rule["id"]: rule
    for section in tomllib.loads(CONFORMANCE.read_text("utf-8"))["section"]
    for rule in section["rules"]
}


def default_of(kind, option):
    """What a client does that was not given the option."""
    if kind is FaultTolerance:
        return getattr(FaultTolerance(), option)
    parameter = inspect.signature(kind).parameters.get(option)
    if parameter is not None:
        return parameter.default
    if option == "max_reconsume_times":
        return -1  # 16 or for ever, as another test shows
    if option in AccessOptions.__annotations__:
        return getattr(Reach(), option)
    setting = SETTINGS[option]
    fields = {field.name: field.default for field in msgspec.structs.fields(setting.home)}
    return fields[setting.field]


@pytest.mark.rule("B6.5a", "B6.5c")
@pytest.mark.parametrize(
    ("kind", "name"),
    [(kind, name) for kind, options in JAVA.items() for name in options],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_a_row_of_javas_tables_is_an_option_with_javas_default(kind, name):
    option, java = JAVA[kind][name]
    assert default_of(kind, option) == BETTER.get(option, java)
    if option in BETTER:
        assert option in RULES["B6.5a"]["differs"]


@pytest.mark.parametrize(
    ("kind", "option", "value"),
    [
        (kind, option, value)
        for kind in (PushConsumer, LitePullConsumer, PullConsumer)
        for option, value in JAVA[kind].values()
        if option != "nameserver"
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_every_option_is_taken(kind, option, value):
    locks = {"take_over_grace_s": 60.0} if option.startswith("lock_") else {}
    if option == "lock_renew_s":
        locks["lock_trust_s"] = 30.0
    kind("g", **{"nameserver": "127.0.0.1:1", **locks, option: value})


@pytest.mark.parametrize("name", NONE)
def test_a_row_of_javas_tables_that_is_no_option_is_a_stated_deviation(name):
    assert name in RULES["B6.5d"]["deviation"]


@pytest.mark.rule("B6.5a")
def test_timers_and_thresholds_of_a_push_consumer_have_javas_defaults():
    consumer = PushConsumer("billing", nameserver="127.0.0.1:1")
    settings, pulls = consumer._settings, consumer._pulls
    assert isinstance(settings, ConsumerSettings)
    limits = settings.limits
    assert {
        "persist_consumer_offset_interval_s": settings.persist_consumer_offset_interval_s,
        "pull_threshold_for_queue": limits.pull_threshold_for_queue,
        "pull_threshold_size_for_queue": limits.pull_threshold_size_for_queue,
        "pull_threshold_for_topic": limits.pull_threshold_for_topic,
        "pull_threshold_size_for_topic": limits.pull_threshold_size_for_topic,
        "consume_concurrently_max_span": limits.consume_concurrently_max_span,
        "consume_timeout_s": settings.consume_timeout_s,
        "suspend_current_queue_time_s": settings.suspend_current_queue_s,
        "pull_batch_size": pulls.pull_batch_size,
        "max_reconsume_times": pulls.max_reconsume_times,
        "enable_trace": consumer._trace_topic is not None,
    } == {
        "persist_consumer_offset_interval_s": 5.0,
        "pull_threshold_for_queue": 1000,
        "pull_threshold_size_for_queue": 100,
        "pull_threshold_for_topic": -1,
        "pull_threshold_size_for_topic": -1,
        "consume_concurrently_max_span": 2000,
        "consume_timeout_s": 15 * 60.0,
        "suspend_current_queue_time_s": 1.0,
        "pull_batch_size": 32,
        "max_reconsume_times": 16,
        "enable_trace": False,
    }
    assert settings.ordered_reconsume_max is None, "for ever"
    # Ours are shorter on purpose, so that others can take over within seconds.
    assert (settings.lock_renew_s, settings.lock_trust_s) == (1.0, 3.0)


@pytest.mark.rule("B10.4")
def test_ids_of_equal_processes_in_different_containers_do_not_collide(monkeypatch):
    # Containers have the same address and process number more often than not.
    monkeypatch.setattr("gimbalmq.client.shared.local_ip", lambda: "172.17.0.2")
    monkeypatch.setattr("gimbalmq.client.shared.os.getpid", lambda: 1)
    made = {
        kind("g", nameserver="127.0.0.1:1").client_id
        for kind in (PushConsumer, LitePullConsumer, PullConsumer, Producer)
        for _ in range(50)
    }
    assert len(made) == 200
    assert all(one.startswith("172.17.0.2@1#") for one in made)


@pytest.mark.rule("W6.4d")
def test_a_consumer_needs_one_connection_to_a_broker():
    with SmallCluster("orders", bodies=[b"x"] * 10) as cluster:
        got = []
        consumer = PushConsumer("billing", nameserver=cluster.address, start_from="first")
        consumer.subscribe("orders", listener=got.append)
        with consumer:
            eventually(lambda: len(got) == 10)
        assert cluster.connects == 1, "name server and broker are one here"
