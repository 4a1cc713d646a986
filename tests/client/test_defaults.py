"""Options that Java has, too, have Java's defaults, except for those that are better otherwise."""

import inspect

import pytest

from client.small_cluster import SmallCluster
from gimbalmq import LitePullConsumer, Producer, PullConsumer, PushConsumer
from gimbalmq.core.consumer.settings import ConsumerSettings
from gimbalmq.runtime.instance import InstanceSettings
from gimbalmq.runtime.pull_calls import PullSettings
from waiting import eventually

COMMON = {"poll_name_server_interval_s": 30.0, "heartbeat_broker_interval_s": 30.0}
#: The tables of Java's options; times in seconds, sizes in MiB.
JAVA = {
    PushConsumer: {
        "broadcasting": False,
        "start_from": "last",
        "allocation": "AVG",
        "workers": 20,
        "batch_size": 1,
        "rebalance_interval_s": 20.0,
        "pull_idle_limit_s": 120.0,
    },
    LitePullConsumer: {
        **COMMON,
        "start_from": "last",
        "allocation": "AVG",
        "auto_commit": True,
        "auto_commit_interval_s": 5.0,
        "pull_batch_size": 10,
        "pull_threshold_for_all": 10_000,
        "pull_threshold_for_queue": 1000,
        "pull_threshold_size_for_queue": 100,
        "consume_max_span": 2000,
        "rebalance_interval_s": 20.0,
    },
    PullConsumer: {**COMMON, "allocation": "AVG", "pull_thread_nums": 20},
    Producer: {
        **COMMON,
        "timeout_s": 3.0,
        "retries": 2,
        "retry_times_when_send_async_failed": 2,
        "fault_tolerance": False,
        "max_message_size": 4 << 20,
        "compress_msg_body_over_howmuch": 4096,
        "compress_level": 5,
        "retry_another_broker_when_not_store_ok": False,
        "create_topic_key": "TBW102",
        "default_topic_queue_nums": 4,
        "enable_trace": False,
    },
}


@pytest.mark.rule("B6.5a")
@pytest.mark.parametrize(
    ("kind", "option", "value"),
    [(kind, *one) for kind, options in JAVA.items() for one in options.items()],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_an_option_has_javas_default(kind, option, value):
    parameters = inspect.signature(kind).parameters
    assert parameters[option].default == value


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


@pytest.mark.rule("B6.5a")
def test_what_is_no_option_of_one_client_has_javas_default_too():
    instance, pulls = InstanceSettings(), PullSettings()
    assert (instance.mq_client_api_timeout_s, instance.use_heartbeat_v2) == (3.0, False)
    assert pulls.broker_suspend_max_time_s == 15.0
    assert pulls.consumer_timeout_when_suspend_s == 30.0
    assert LitePullConsumer("g", nameserver="127.0.0.1:1")._pulls.broker_suspend_max_time_s == 20.0


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
