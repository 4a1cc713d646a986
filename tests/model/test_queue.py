import pytest
from hypothesis import given
from hypothesis import strategies as st

from gimbalmq.errors import ConfigurationError
from gimbalmq.model.queue import MessageQueue, parse_queue, sorted_queues

_names = st.sampled_from(["a", "b", "B", "é", "\ufb00", "\U0001f600", "broker-a", "broker-10"])
_queues = st.builds(MessageQueue, _names, _names, st.integers(0, 12))


@pytest.mark.rule("B0a")
def test_queues_are_ordered_by_topic_then_broker_then_number():
    ordered = [
        MessageQueue("a", "x", 9),
        MessageQueue("b", "x", 2),
        MessageQueue("b", "x", 10),
        MessageQueue("b", "y", 0),
    ]
    assert sorted([*ordered[2:], *ordered[:2]]) == ordered
    assert sorted_queues(reversed(ordered)) == ordered


@pytest.mark.rule("B0b")
def test_names_are_ordered_by_utf16_units():
    # A supplementary character starts with a unit below U+FB00, although its code point is above.
    face, ligature = MessageQueue("\U0001f600", "x", 0), MessageQueue("\ufb00", "x", 0)
    assert face < ligature
    assert sorted_queues([ligature, face]) == [face, ligature]


@given(st.lists(_queues))
def test_the_fast_order_is_the_order(queues):
    assert sorted_queues(queues) == sorted(queues)


@given(_queues, _queues)
def test_comparisons_agree_with_each_other(one, two):
    assert (one < two) == (two > one)
    assert (one <= two) == (not one > two)
    assert (one >= two) == (one > two or one == two)


@pytest.mark.rule("B0d")
def test_the_text_form_is_javas():
    queue = MessageQueue("orders", "broker-a", 3)
    assert str(queue) == "MessageQueue [topic=orders, brokerName=broker-a, queueId=3]"


@given(_queues)
def test_a_path_can_be_read_back(queue):
    assert parse_queue(queue.path) == queue


@pytest.mark.parametrize("path", ["", "orders", "orders/a", "/a/1", "orders//1", "t/a/x", "t/a/²"])
def test_what_is_no_path_is_refused_with_an_example(path):
    with pytest.raises(ConfigurationError, match="orders/broker-a/3"):
        parse_queue(path)
