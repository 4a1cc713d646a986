from gimbalmq.wire.trace import (
    TracedMessage,
    TraceMessageType,
    end_transaction_record,
    publish_record,
)

MESSAGE = TracedMessage("orders", "ID", "paid", "k1 k2", TraceMessageType.NORMAL)


def test_a_sent_message_has_javas_fourteen_fields_in_javas_order():
    record = publish_record(
        MESSAGE,
        sent_ms=1,
        region="r",
        group="g",
        store_host="h:1",
        body_bytes=2,
        cost_ms=3,
        offset_message_id="7F",
        success=True,
    )
    assert record == (
        "Pub\x011\x01r\x01g\x01orders\x01ID\x01paid\x01k1 k2\x01h:1\x012\x013\x010\x017F\x01true\x02"
    )


def test_the_end_of_a_transaction_has_javas_thirteen_fields():
    record = end_transaction_record(
        MESSAGE,
        ended_ms=1,
        region="r",
        group="g",
        store_host="h:1",
        transaction_id="T",
        state="COMMIT_MESSAGE",
        from_check=False,
    )
    assert record.count("\x01") == 12
    assert record.endswith("\x01T\x01COMMIT_MESSAGE\x01false\x02")
