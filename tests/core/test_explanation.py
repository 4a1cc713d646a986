"""What is said about a queue, from what members said."""

import pytest

from gimbalmq.core.consumer.ground import members_digest
from gimbalmq.core.explanation import ExplainFacts, explain_facts
from gimbalmq.core.group_facts import HoldFacts, MemberFacts
from gimbalmq.model.queue import MessageQueue
from gimbalmq.model.sharing import MemberAnswer, Reason, Sharing

QUEUE = MessageQueue("orders", "broker-a", 3)
ANN, BOB, GONE = (f"{name}@gmq1-AVG+rejoin30" for name in ("ann", "bob", "gone"))
RULE = "It is the rule."


def sharing(**changes):
    said = {"strategy": "AVG", "wanted": "AVG", "listed": members_digest((ANN, BOB)), **changes}
    return Sharing(**said)


def member(name, hold=None, says=None, **more):
    held = {} if hold is None else {QUEUE: hold}
    return MemberFacts(name, held=held, sharing=sharing() if says is None else says, **more)


def told(*members, owner=ANN, answer=None, teller=ANN, **more):
    answer = answer or MemberAnswer(Reason(owner, "AVG", {"queues": 8}, RULE))
    return explain_facts(
        ExplainFacts("billing", QUEUE, (ANN, BOB), members, answer, teller, **more)
    )


HELD = HoldFacts()


def test_where_all_is_as_the_rule_says_the_rule_is_all_that_is_said():
    found = told(member(ANN, HELD), member(BOB))
    assert (found.sentence, found.holders, found.owner) == (RULE, (ANN,), ANN)
    assert (found.differences, found.unknown, found.absent, found.weights) == ((), (), {}, None)


@pytest.mark.parametrize(
    ("ann", "bob", "words"),
    [
        (member(ANN), member(BOB), f"But '{ANN}' does not hold it now"),
        (member(ANN), member(BOB, HELD), f"But '{BOB}' holds it now"),
        (member(ANN, HELD), member(BOB, HELD), f"'{ANN}' and '{BOB}' hold it at the same time"),
        (member(ANN), member(BOB, HoldFacts(releasing=True)), f"'{BOB}' has lost it and not let"),
        (
            member(ANN, HELD),
            member(BOB, says=sharing(listed=members_digest((BOB,)))),
            f"'{BOB}' shares out by another list of members than brokers have",
        ),
        (
            member(ANN, HELD),
            member(BOB, says=sharing(strategy="AVG_BY_CIRCLE")),
            f"'{BOB}' shares out by AVG_BY_CIRCLE and '{ANN}' by AVG",
        ),
        (
            member(ANN, HELD),
            member(BOB, says=sharing(waits={GONE: 3.0})),
            f"'{BOB}' counts '{GONE}' among the absent",
        ),
        (member(ANN, HELD), member(BOB, says=sharing(paused=True)), f"'{BOB}' is paused"),
        (member(ANN, HELD), member(BOB, says=sharing(manual=True)), "chosen by its user"),
        (member(ANN, HELD), member(BOB, says=sharing(listed="")), "has not seen a list"),
    ],
)
def test_what_is_not_as_the_rule_says_is_named(ann, bob, words):
    found = told(ann, bob)
    assert words in found.differences[0]
    assert len(found.differences) == 1
    assert found.sentence == f"{RULE} {found.differences[0]}"


def test_an_absent_owner_is_no_difference_but_a_reason():
    says = sharing(waits={GONE: 12.34})
    found = told(member(ANN, says=says), member(BOB, says=says), owner=GONE)
    assert (found.owner, found.holders, found.differences) == (GONE, (), ())
    assert found.absent == {GONE: 12.34}
    assert found.sentence == (
        f"{RULE} '{GONE}' is absent: its queues are kept for it for another 12.3 s "
        "(rejoin_grace_s), and nobody consumes this one meanwhile."
    )


def test_another_absent_one_is_told_to_be_counted():
    says = sharing(waits={GONE: 5.0})
    found = told(member(ANN, HELD, says), member(BOB, says=says))
    assert "is absent and counted as if it were there for another 5.0 s" in found.sentence


def test_weights_are_told_by_version_and_topic_where_they_are_used():
    answer = MemberAnswer(Reason(ANN, "WEIGHTED.published", {"weight": 2.5}, RULE))
    says = sharing(weights_topic="loads", versions={"orders": 7})
    found = told(member(ANN, HELD, says), member(BOB, says=says), answer=answer)
    assert (found.weights.topic, found.weights.version, found.weights.weight) == ("loads", 7, 2.5)
    assert "those of version 7, published in topic 'loads'" in found.sentence
    old = sharing(weights_topic="loads", versions={"orders": 6})
    found = told(member(ANN, HELD, says), member(BOB, says=old), answer=answer)
    assert found.differences == (f"'{BOB}' uses version 6 of the weights, '{ANN}' 7.",)
    zoned = MemberAnswer(Reason(ANN, "ZONED.1-WEIGHTED", {"inner": {"weight": 4.0}}, RULE))
    found = told(member(ANN, HELD, says), member(BOB, says=says), answer=zoned)
    assert found.weights.weight == 4.0
    fallen = sharing(weights_topic="loads", versions={"orders": 7}, reason="a Java member")
    found = told(member(ANN, HELD, fallen), member(BOB, says=fallen))
    assert (found.weights, found.fallback) == (None, "a Java member")
    assert "version" not in found.sentence


def test_no_grace_time_is_told_with_its_reason():
    says = sharing(no_waiting="member 'x' has none")
    found = told(member(ANN, HELD, says), member(BOB))
    assert "There is no grace time for members that are gone now: member 'x' has none." in (
        found.sentence
    )


def test_silence_is_not_taken_for_an_answer():
    silent = MemberFacts(BOB)
    found = told(member(ANN), silent, owner=BOB)
    assert found.differences == ()
    assert found.unknown == (
        f"'{BOB}' did not answer, so whether it holds the queue is not known.",
    )
    found = told(member(ANN, HELD), silent)
    assert "whether it holds the queue, too, is not known" in found.unknown[0]


def test_a_user_who_pulls_is_not_said_to_hold_or_not():
    found = told(member(ANN, says=sharing(passive=True)), member(BOB))
    assert (found.differences, len(found.unknown)) == ((), 1)
    assert "whether it is read is not known" in found.sentence


def test_what_no_member_can_explain_still_says_who_holds_it():
    found = told(member(ANN), member(BOB, HELD), answer=MemberAnswer(trouble="too early"))
    assert (found.owner, found.rule, found.holders) == (None, None, (BOB,))
    assert found.sentence.startswith(f"{QUEUE.path} is held by '{BOB}'; why cannot be said: too")


def test_a_what_if_says_nothing_about_what_is():
    found = told(member(ANN), member(BOB, HELD), what_if=True, remark="Only if.", teller=None)
    assert (found.sentence, found.differences) == (f"{RULE} Only if.", ())
