"""OpenTelemetry: a span for each send and each consumption, joined across the broker.

    from gimbalmq import otel

    otel.instrument(producer)
    otel.instrument(consumer)        # before its start

The context travels in message properties, as W3C `traceparent` (or whatever propagator the
application has set), so clients in other languages can go on with it. Needs the extra `otel`; spans
go where the application's SDK sends them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar, Token
from typing import TYPE_CHECKING, Any, Final, TypeVar

from gimbalmq import aio
from gimbalmq.client.producer import Producer
from gimbalmq.client.push_consumer import PushConsumer
from gimbalmq.client.send_hooks import SendDone
from gimbalmq.errors import ConfigurationError
from gimbalmq.model.message import Message, SendResult
from gimbalmq.wire.received import ReceivedMessage

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, TracerProvider

__all__ = ["instrument"]

_ClientT = TypeVar("_ClientT", Producer, PushConsumer, aio.Producer, aio.PushConsumer)
_SYSTEM = {"messaging.system": "rocketmq"}


def instrument(client: _ClientT, *, tracer_provider: TracerProvider | None = None) -> _ClientT:
    """Make spans for what a producer sends, or a consumer's listeners do; returns the client.

    Args:
        client: A producer, or a push consumer that is not started yet; of `gimbalmq.aio`, too.
        tracer_provider: Where spans go; None: the application's own provider.

    Raises:
        ConfigurationError: opentelemetry-api is not installed, or the client is of another kind.
    """
    try:
        from opentelemetry import trace
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            'OpenTelemetry is not installed. Install it with: pip install "gimbalmq[otel]"'
        ) from error
    tracer = trace.get_tracer("gimbalmq", tracer_provider=tracer_provider)
    match client:
        case Producer() | aio.Producer():
            client.send_hook = _send_spans(client, tracer)
        case PushConsumer() | aio.PushConsumer():
            spans = _ListenerSpans(client, tracer)
            client.before(spans.begin)
            client.after(spans.end)
        case _:
            raise ConfigurationError(
                f"{type(client).__name__} cannot be instrumented: give a Producer or a PushConsumer"
            )
    return client


def _send_spans(
    producer: Producer | aio.Producer, tracer: Any
) -> Callable[[Sequence[Message]], tuple[Sequence[Message], SendDone]]:
    from opentelemetry import propagate, trace

    def begin(messages: Sequence[Message]) -> tuple[Sequence[Message], SendDone]:
        topic = messages[0].topic if messages else ""
        span = tracer.start_span(
            f"send {topic}",
            kind=trace.SpanKind.PRODUCER,
            attributes={
                **_SYSTEM,
                "messaging.operation.type": "send",
                "messaging.operation.name": "send",
                "messaging.destination.name": topic,
                "messaging.client.id": producer.client_id,
                "messaging.batch.message_count": len(messages),
            },
        )
        carrier: dict[str, str] = {}
        propagate.inject(carrier, trace.set_span_in_context(span))
        changed = [_with_properties(one, carrier) for one in messages]

        def done(outcome: Sequence[SendResult] | BaseException) -> None:
            if isinstance(outcome, BaseException):
                _failed(span, outcome)
            elif outcome:
                span.set_attribute("messaging.message.id", outcome[0].message_id)
            span.end()

        return changed, done

    return begin


def _with_properties(message: Message, added: dict[str, str]) -> Message:
    """A copy: the user may send the same message again."""
    return Message(
        message.topic,
        message.body,
        tags=message.tags,
        keys=message.keys,
        properties={**message.properties, **added},
        delay_level=message.delay_level,
        deliver_at=message.deliver_at,
        sharding_key=message.sharding_key,
    )


class _ListenerSpans:
    """Spans around listeners: one for each call, begun and ended on its thread or in its task."""

    def __init__(self, consumer: PushConsumer | aio.PushConsumer, tracer: Any) -> None:
        self._consumer = consumer
        self._tracer = tracer

    def begin(self, given: ReceivedMessage | list[ReceivedMessage]) -> None:
        from opentelemetry import context, propagate, trace

        messages = given if isinstance(given, list) else [given]
        first = messages[0]
        sources = [propagate.extract(dict(one.properties)) for one in messages]
        # A single message goes on with its sender's trace; a batch may have many senders.
        parent = sources[0] if len(messages) == 1 else context.get_current()
        links = [
            trace.Link(found)
            for source in (sources if len(messages) > 1 else ())
            if (found := trace.get_current_span(source).get_span_context()).is_valid
        ]
        span = self._tracer.start_span(
            f"process {first.topic}",
            context=parent,
            kind=trace.SpanKind.CONSUMER,
            links=links,
            attributes={
                **_SYSTEM,
                "messaging.operation.type": "process",
                "messaging.operation.name": "process",
                "messaging.destination.name": first.topic,
                "messaging.destination.partition.id": f"{first.queue.broker}/{first.queue.queue_id}",
                "messaging.consumer.group.name": self._consumer.group,
                "messaging.client.id": self._consumer.client_id,
                "messaging.message.id": first.message_id,
                "messaging.batch.message_count": len(messages),
            },
        )
        # What the listener sends or calls becomes a part of this span.
        _current.set((self, span, context.attach(trace.set_span_in_context(span, parent))))

    def end(self, _given: object, error: BaseException | None, _took_s: float) -> None:
        from opentelemetry import context

        current = _current.get()
        if current is None or current[0] is not self:
            return  # an earlier hook refused the message
        _current.set(None)
        _, span, token = current
        context.detach(token)
        if error is not None:
            _failed(span, error)
        span.end()


#: The span of the listener that runs here, whose it is, and how to go back to what was before.
_current: Final[ContextVar[tuple[_ListenerSpans, Span, Token[Context]] | None]] = ContextVar(
    "gimbalmq_listener_span", default=None
)


def _failed(span: Span, error: BaseException) -> None:
    from opentelemetry.trace import Status, StatusCode

    span.record_exception(error)
    span.set_status(Status(StatusCode.ERROR, str(error) or type(error).__name__))
    span.set_attribute("error.type", type(error).__name__)
