import pytest

from gimbalmq.errors import ProtocolError
from gimbalmq.model.weights import QueueWeights
from gimbalmq.wire.absence import decode_absent, encode_absent
from gimbalmq.wire.weights import decode_weights, encode_weights

DOCUMENT = QueueWeights(3, "orders", 1_700_000_000_000, {"orders/broker-a/0": 2.5})


def test_a_document_is_read_back_as_it_was_written():
    assert decode_weights(encode_weights(DOCUMENT)) == DOCUMENT


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "not a document"),
        (b"[]", "not a document"),
        (b'{"version":1,"topic":"orders","made_at_ms":1}', "not a document"),
        (b'{"version":1,"topic":"orders","made_at_ms":1,"weights":{"orders":1}}', "orders"),
        (
            b'{"version":1,"topic":"orders","made_at_ms":1,"weights":{"other/a/0":1}}',
            "a queue of another topic",
        ),
    ],
)
def test_anything_else_is_an_error_that_says_what_is_wrong(body, words):
    with pytest.raises(ProtocolError, match=words):
        decode_weights(body)


def test_who_is_gone_is_read_back_to_the_millisecond():
    assert decode_absent(encode_absent({"b": 2.0, "a": 1.23456})) == {"a": 1.235, "b": 2.0}
    with pytest.raises(ProtocolError, match="PROP_GIMBALMQ_ABSENT"):
        decode_absent("[]")
