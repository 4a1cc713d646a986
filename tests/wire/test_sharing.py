import pytest

from gimbalmq.errors import ProtocolError
from gimbalmq.model.sharing import MemberAnswer, Move, Reason, Sharing, WithoutMembers
from gimbalmq.wire.sharing import (
    decode_answer,
    decode_sharing,
    decode_without,
    encode_answer,
    encode_sharing,
    encode_without,
)


def test_what_a_member_says_comes_back_as_it_was():
    sharing = Sharing(
        "AVG",
        "ZONED.1",
        "why",
        "d1",
        {"ann": 1.5},
        "nobody",
        "weights",
        {"orders": 7},
        passive=True,
    )
    assert decode_sharing(encode_sharing(sharing)) == sharing
    moves = (Move("orders/broker-a/0", "ann", None),)
    later = WithoutMembers(("ann",), None, "Then.", moves, "AVG", "why", 3.0)
    answer = MemberAnswer(Reason("ann", "AVG", {"queues": 4}, "Because."), later)
    text = encode_answer(answer)
    assert decode_answer(text) == answer
    assert '"from":"ann"' in text
    assert decode_without(encode_without(("ann", "bob"))) == ("ann", "bob")


def test_numbers_of_a_foreign_strategy_that_json_does_not_know_become_text():
    answer = MemberAnswer(Reason("ann", "MINE", {"part": 1j}, "Because."))
    assert decode_answer(encode_answer(answer)).reason.data == {"part": "1j"}


@pytest.mark.parametrize("decode", [decode_sharing, decode_answer, decode_without])
@pytest.mark.parametrize("text", ["", "7", '{"strategy":3}', '["x",7]'])
def test_something_else_is_refused(decode, text):
    if decode is decode_answer and text.startswith("{"):
        text = '{"reason":3}'
    with pytest.raises(ProtocolError, match="cannot be read"):
        decode(text)
