from __future__ import annotations

import asyncio
import sys
import threading

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from aio.conftest import until
from gimbalmq import Admin, Message, Producer, PushConsumer, aio, otel
from gimbalmq.broker import EmbeddedCluster
from gimbalmq.errors import ConfigurationError, GimbalError
from gimbalmq.model.queue import MessageQueue


@pytest.fixture(scope="module")
def cluster():
    with EmbeddedCluster(1) as cluster:
        yield cluster


class Spans:
    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    def named(self, name):
        return [span for span in self._exporter.get_finished_spans() if span.name == name]


@pytest.fixture
def spans():
    found = Spans()
    yield found
    found.provider.shutdown()


@pytest.fixture
def topic(cluster, topic_name):
    with Admin(cluster.nameserver) as admin:
        admin.create_topic(topic_name, queues=1)
    return topic_name


def consumed(cluster, topic, group, spans, listener, send, **options):
    """Send, let the listener have it, and stop the consumer, which ends every span."""
    got = threading.Event()

    def listen(messages):
        try:
            return listener(messages)
        finally:
            got.set()

    consumer = PushConsumer(group, nameserver=cluster.nameserver, start_from="first", **options)
    otel.instrument(consumer, tracer_provider=spans.provider)
    consumer.subscribe(topic, listener=listen)
    with Producer("makers", nameserver=cluster.nameserver) as producer:
        send(otel.instrument(producer, tracer_provider=spans.provider))
    with consumer:
        assert got.wait(30)


def test_a_listener_goes_on_with_the_trace_of_the_sender(cluster, topic, group_name, spans):
    inside = []

    def listener(message):
        inside.append((message, trace.get_current_span().get_span_context().span_id))

    consumed(
        cluster, topic, group_name, spans, listener,
        lambda producer: producer.send(Message(topic, b"x", properties={"mine": "kept"})),
    )  # fmt: skip
    (sent,) = spans.named(f"send {topic}")
    (processed,) = spans.named(f"process {topic}")
    message, span_id = inside[0]
    assert processed.context.trace_id == sent.context.trace_id
    assert processed.parent.span_id == sent.context.span_id
    assert span_id == processed.context.span_id
    assert message.properties["mine"] == "kept"
    trace_id, sender = message.properties["traceparent"].split("-")[1:3]
    assert (int(trace_id, 16), int(sender, 16)) == (sent.context.trace_id, sent.context.span_id)
    assert sent.kind is trace.SpanKind.PRODUCER
    assert processed.kind is trace.SpanKind.CONSUMER
    assert sent.attributes["messaging.message.id"] == message.message_id
    assert processed.attributes["messaging.consumer.group.name"] == group_name


def test_a_batch_links_to_all_its_senders(cluster, topic, group_name, spans):
    def send(producer):
        producer.send(Message(topic, b"1"))
        producer.send_async(Message(topic, b"2")).result(10)

    consumed(
        cluster, topic, group_name, spans, lambda messages: None, send, batch_size=2
    )  # fmt: skip
    sent = {span.context.span_id for span in spans.named(f"send {topic}")}
    assert len(sent) == 2
    (processed,) = spans.named(f"process {topic}")
    assert {link.context.span_id for link in processed.links} == sent
    assert processed.attributes["messaging.batch.message_count"] == 2


def test_a_listener_that_raises_has_a_span_with_its_error(cluster, topic, group_name, spans):
    def listener(message):
        raise ValueError("no luck")

    consumed(
        cluster, topic, group_name, spans, listener,
        lambda producer: producer.send(Message(topic, b"x")),
    )  # fmt: skip
    (processed,) = spans.named(f"process {topic}")
    assert processed.status.status_code is trace.StatusCode.ERROR
    assert processed.attributes["error.type"] == "ValueError"


def test_every_way_to_send_has_a_span_also_one_that_fails(cluster, topic, spans):
    with Producer("makers", nameserver=cluster.nameserver) as producer:
        otel.instrument(producer, tracer_provider=spans.provider)
        producer.send_batch([Message(topic, b"1"), Message(topic, b"2")])
        producer.send_oneway(Message(topic, b"3"))
        with pytest.raises(GimbalError):
            producer.send(Message(topic, b"4"), queue=MessageQueue(topic, "no-such-broker", 0))
    batch, oneway, failed = spans.named(f"send {topic}")
    assert batch.attributes["messaging.batch.message_count"] == 2
    assert oneway.status.is_ok
    assert failed.status.status_code is trace.StatusCode.ERROR


def test_coroutines_that_run_at_once_each_go_on_with_the_trace_of_their_sender(
    cluster, topic, group_name, spans
):
    inside = {}

    async def main():
        consumer = aio.PushConsumer(group_name, nameserver=cluster.nameserver, start_from="first")
        otel.instrument(consumer, tracer_provider=spans.provider)
        together = asyncio.Barrier(3)

        @consumer.subscribe(topic)
        async def listen(message):
            before = trace.get_current_span().get_span_context().span_id
            await together.wait()
            after = trace.get_current_span().get_span_context().span_id
            assert before == after
            inside[after] = message.properties["traceparent"].split("-")[2]
            if message.body == b"1":
                raise ValueError("no luck")

        async with aio.Producer("makers", nameserver=cluster.nameserver) as producer:
            otel.instrument(producer, tracer_provider=spans.provider)
            await asyncio.gather(*(producer.send(Message(topic, b"%d" % n)) for n in range(3)))
        async with consumer:
            await until(lambda: len(spans.named(f"process {topic}")) == 3, 30.0)

    asyncio.run(main())
    sent = {span.context.span_id for span in spans.named(f"send {topic}")}
    processed = spans.named(f"process {topic}")
    assert len(sent) == len(processed) == 3
    assert {span.parent.span_id for span in processed} == sent
    assert {span.context.span_id: f"{span.parent.span_id:016x}" for span in processed} == inside
    assert [span.status.is_ok for span in processed].count(False) == 1


def test_a_coroutine_that_is_cancelled_has_a_span_that_ends(cluster, topic, group_name, spans):
    told = []

    async def main():
        consumer = aio.PushConsumer(group_name, nameserver=cluster.nameserver, start_from="first")
        otel.instrument(consumer, tracer_provider=spans.provider)
        consumer.after(lambda message, error, _took_s: told.append((message.body, type(error))))
        listening = asyncio.Event()

        @consumer.subscribe(topic)
        async def listen(_message):
            listening.set()
            await asyncio.Event().wait()  # for ever

        async with aio.Producer("makers", nameserver=cluster.nameserver) as producer:
            await producer.send(Message(topic, b"stuck"))
        await consumer.start()
        await asyncio.wait_for(listening.wait(), 30.0)
        await consumer.stop(drain_s=0.1)

    asyncio.run(main())
    (span,) = spans.named(f"process {topic}")
    assert span.end_time is not None
    assert not span.status.is_ok
    assert span.attributes["error.type"] == "CancelledError"
    assert told == [(b"stuck", asyncio.CancelledError)]


def test_every_way_to_send_on_a_loop_has_a_span_also_one_that_fails(cluster, topic, spans):
    async def main():
        async with aio.Producer("makers", nameserver=cluster.nameserver) as producer:
            otel.instrument(producer, tracer_provider=spans.provider)
            await producer.send_batch([Message(topic, b"1"), Message(topic, b"2")])
            await producer.send_oneway(Message(topic, b"3"))
            nowhere = MessageQueue(topic, "no-such-broker", 0)
            with pytest.raises(GimbalError):
                await producer.send(Message(topic, b"4"), queue=nowhere)

    asyncio.run(main())
    batch, oneway, failed = spans.named(f"send {topic}")
    assert batch.attributes["messaging.batch.message_count"] == 2
    assert "messaging.message.id" in batch.attributes
    assert oneway.status.is_ok
    assert failed.status.status_code is trace.StatusCode.ERROR


def test_without_opentelemetry_it_says_what_to_install(cluster, monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(ConfigurationError, match=r'pip install "gimbalmq\[otel\]"'):
        otel.instrument(Producer("makers", nameserver=cluster.nameserver))


def test_other_clients_are_refused(cluster):
    with (
        Admin(cluster.nameserver) as admin,
        pytest.raises(ConfigurationError, match="Admin cannot be instrumented"),
    ):
        otel.instrument(admin)
