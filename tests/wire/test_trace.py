from gimbalmq.wire.trace import (
    ConsumeOutcome,
    TracedMessage,
    TraceMessageType,
    consumed_record,
    consuming_record,
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


def test_what_a_listener_gets_and_says_has_javas_eight_and_nine_fields():
    before = consuming_record(
        "ID", "k1 k2", started_ms=1, region="r", group="g", request_id="Q", reconsume_times=2
    )
    assert before == "SubBefore\x011\x01r\x01g\x01Q\x01ID\x012\x01k1 k2\x02"
    after = consumed_record(
        "ID",
        "k1 k2",
        ended_ms=5,
        group="g",
        request_id="Q",
        cost_ms=4,
        outcome=ConsumeOutcome.EXCEPTION,
    )
    assert after == "SubAfter\x01Q\x01ID\x014\x01false\x01k1 k2\x012\x015\x01g\x02"
