from __future__ import annotations

import pytest

from gimbalmq.errors import ConfigurationError
from gimbalmq.model.queue import MessageQueue
from gimbalmq.wire import names


@pytest.mark.rule("W5.1")
@pytest.mark.parametrize("name", ["", "a b", "a.b", "x" * 128, "主题"])
def test_a_topic_name_that_brokers_refuse_is_refused_first(name):
    with pytest.raises(ConfigurationError, match="no topic name"):
        names.check_topic(name)


@pytest.mark.parametrize("name", ["", "a b", "x" * 121])
def test_a_group_name_that_brokers_refuse_is_refused_first(name):
    with pytest.raises(ConfigurationError, match="no group name"):
        names.check_group(name)


def test_allowed_names_are_returned():
    assert names.check_topic("a-Z_0|%") == "a-Z_0|%"
    assert names.check_group("x" * 120) == "x" * 120


def test_only_derived_topics_may_be_longer():
    assert names.is_stored_topic("%RETRY%" + "g" * 248)
    assert not names.is_stored_topic("%RETRY%" + "g" * 249)
    assert not names.is_stored_topic("t" * 128)


def test_the_topic_behind_a_pop_retry_topic():
    assert names.normal_topic("%RETRY%g+orders", "g") == "orders"
    assert names.normal_topic("%RETRY%g_orders", "g") == "orders"
    assert names.normal_topic("orders", "g") == "orders"


def test_topics_derived_from_a_group_or_cluster():
    assert names.retry_topic("g") == "%RETRY%g"
    assert names.dlq_topic("g") == "%DLQ%g"
    assert names.reply_topic("c") == "c_REPLY_TOPIC"
    assert names.pop_retry_topic("t", "g") == "%RETRY%g_t"
    assert names.pop_retry_topic("t", "g", second_form=True) == "%RETRY%g+t"
    assert names.with_namespace_and_retry("shop", "g") == "%RETRY%shop%g"
    assert names.with_namespace_and_retry("shop", "") is None


@pytest.mark.rule("W5.9")
@pytest.mark.parametrize("name", ["orders", "%RETRY%billing", "%DLQ%billing", "TBW102"])
def test_a_namespace_is_added_once_and_can_be_taken_away(name):
    inside = names.with_namespace("shop", name)
    assert names.with_namespace("shop", inside) == inside
    assert names.without_namespace(inside) == name
    assert names.without_namespace(inside, "shop") == name
    assert names.namespace_of(inside) == ("" if name == "TBW102" else "shop")


@pytest.mark.parametrize(
    "name", ["orders", "%RETRY%billing", "%DLQ%billing", "TBW102", "rmq_sys_x"]
)
def test_both_views_of_a_name_lead_to_each_other(name):
    for namespace in (names.Namespace(), names.Namespace("shop")):
        queue = MessageQueue(name, "broker-a", 1)
        assert namespace.user(namespace.wire(name)) == name
        assert namespace.user_queue(namespace.wire_queue(queue)) == queue
        assert namespace.wire(namespace.wire(name)) == namespace.wire(name)
