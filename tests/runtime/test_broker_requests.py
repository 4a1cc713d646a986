"""What brokers ask, and who answers."""

from __future__ import annotations

import pytest

from gimbalmq.core.routes import RouteTable
from gimbalmq.runtime.broker_requests import BrokerRequests
from gimbalmq.wire.command import Command


class Member:
    """Knows one kind of question."""

    def __init__(self):
        self.notices = 0

    def on_notice(self):
        self.notices += 1

    def on_request(self, request, reply):
        if request.code == 307:
            reply(request)
        return request.code == 307


@pytest.fixture
def asked():
    return []


@pytest.fixture
def member():
    return Member()


@pytest.fixture
def requests(member, asked):
    producers = {"shop": lambda address, check: asked.append((address, check.group)), "till": None}
    return BrokerRequests(
        {"billing": member}, producers, RouteTable(), lambda key, text: asked.append(text)
    )


def test_a_question_that_the_group_knows_is_answered_by_it_later(requests, asked):
    question = Command(307, {"consumerGroup": "billing"}, opaque=5)
    assert requests.answer("a:1", question, asked.append) is None
    assert asked == [question]


@pytest.mark.parametrize("field", ["consumerGroup", "group"])
def test_a_notice_reaches_its_group_by_either_name(requests, member, field):
    assert requests.answer("a:1", Command(40, {field: "billing"}, flag=2), print) is None
    assert requests.answer("a:1", Command(40, {field: "others"}, flag=2), print) is None
    assert member.notices == 1


@pytest.mark.parametrize(
    ("fields", "code", "words"),
    [
        ({"group": "others"}, 1, "The Consumer Group <others> not exist"),
        ({"group": "billing"}, 3, "not supported"),
        ({}, 3, "not supported"),
    ],
)
def test_what_nobody_knows_is_refused_in_words(requests, fields, code, words):
    answer = requests.answer("a:1", Command(9999, fields, opaque=5), print)
    assert (answer.code, answer.opaque) == (code, 5)
    assert words in answer.remark


def test_a_question_about_a_transaction_that_cannot_be_read_is_only_told(requests, asked):
    assert requests.answer("a:1", Command(39, {}, flag=2), print) is None
    (text,) = asked
    assert text.startswith("a:1 asks about a transaction")
