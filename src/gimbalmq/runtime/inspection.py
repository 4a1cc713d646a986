"""What brokers and tools ask a running consumer, and the answers.

`mqadmin consumerStatus` and our own doctor read the running info: which queues a member believes
to own, how far it is, what it subscribes to, and where its threads are.
"""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Iterable, Mapping
from typing import Final

from gimbalmq.core.consumer.held import HeldQueue, HeldState
from gimbalmq.core.consumer.settings import ConsumerSettings
from gimbalmq.flows.effects import Instant
from gimbalmq.model.queue import MessageQueue
from gimbalmq.model.sharing import Sharing
from gimbalmq.model.verdict import Commit, DeadLetter, RetryLater, Rollback, Suspend
from gimbalmq.runtime.listening import Listening
from gimbalmq.wire.absence import ABSENT_PROPERTY, encode_absent
from gimbalmq.wire.bodies import ConsumeResult, QueueInfo, RunningInfo
from gimbalmq.wire.codes import CLIENT_VERSION, version_name
from gimbalmq.wire.received import ReceivedMessage
from gimbalmq.wire.sharing import SHARING_PROPERTY, encode_sharing
from gimbalmq.wire.subscription import SubscriptionData

__all__ = ["consume_directly", "running_info", "thread_stacks"]

#: As many places of an error's way as Java tells.
_PLACES: Final = 2


def running_info(
    held_queues: Mapping[MessageQueue, HeldQueue],
    settings: ConsumerSettings,
    subscriptions: Iterable[SubscriptionData],
    *,
    nameservers: Iterable[str],
    consume_type: str,
    started_ms: int,
    workers: int,
    now: Instant,
    with_stacks: bool,
    absent: Mapping[str, float] | None = None,
    sharing: Sharing | None = None,
) -> RunningInfo:
    """Everything there is to know about a consumer.

    `absent`: whom it knows to be gone; `sharing`: by what it shares out queues.
    """
    known = {} if absent is None else {ABSENT_PROPERTY: encode_absent(absent)}
    if sharing is not None:
        known[SHARING_PROPERTY] = encode_sharing(sharing)
    return RunningInfo(
        properties={
            "PROP_NAMESERVER_ADDR": "".join(f"{address};" for address in nameservers),
            "PROP_CONSUME_TYPE": consume_type,
            "PROP_CLIENT_VERSION": "V" + version_name(CLIENT_VERSION).replace(".", "_"),
            "PROP_THREADPOOL_CORE_SIZE": str(workers),
            "PROP_CONSUMEORDERLY": "true" if settings.ordered else "false",
            "PROP_CONSUMER_START_TIMESTAMP": str(started_ms),
            **known,
        },
        subscriptions=tuple(subscriptions),
        queues={
            queue: _queue_info(held, now)
            for queue, held in held_queues.items()
            if held.process is not None
        },
        stacks=thread_stacks() if with_stacks else None,
    )


def _queue_info(held: HeldQueue, now: Instant) -> QueueInfo:
    process = held.process
    assert process is not None
    return QueueInfo(
        commit_offset=process.commit_offset,
        cached_min_offset=process.cached_from if process.cached_count else 0,
        cached_max_offset=process.cached_from + process.span if process.cached_count else 0,
        cached_count=process.cached_count,
        cached_size_mib=process.cached_bytes >> 20,
        locked=held.permit is not None and held.state is not HeldState.LOCKING,
        dropped=held.released,
        last_pull_timestamp=now.wall_ms - int((now.at_s - held.last_pull_at) * 1000),
    )


def thread_stacks() -> str:
    """The stack of every thread of this process, as text."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return "\n".join(
        f"{names.get(ident, ident)}\n" + "".join(traceback.format_stack(frame))
        for ident, frame in sys._current_frames().items()  # noqa: SLF001 - the only way there is
    )


def consume_directly(
    listening: Listening, message: ReceivedMessage, *, ordered: bool
) -> ConsumeResult:
    """Have a listener consume one message now, outside of any queue, and say what it did."""
    started = time.monotonic()
    result, remark = _outcome(listening, message, ordered=ordered)
    return ConsumeResult(
        result=result,
        order=ordered,
        auto_commit=listening.auto_commit,
        remark=remark,
        spent_ms=int((time.monotonic() - started) * 1000),
    )


def _outcome(
    listening: Listening, message: ReceivedMessage, *, ordered: bool
) -> tuple[str, str | None]:
    try:
        verdict = listening.directly(message)
    except (RetryLater, Suspend, DeadLetter) as signal:
        return "CR_LATER", str(signal)
    except BaseException as error:  # noqa: BLE001 - whatever it raises is the answer
        return "CR_THROW_EXCEPTION", _described(error)
    if ordered and verdict is Commit:
        return "CR_COMMIT", None
    if ordered and verdict is Rollback:
        return "CR_ROLLBACK", None
    return "CR_SUCCESS", None


def _described(error: BaseException) -> str:
    """What was raised, and the innermost places that it came through."""
    places = traceback.extract_tb(error.__traceback__)[-_PLACES:]
    return "".join(traceback.format_exception_only(error)).strip() + "".join(
        f"\n  in {place.name}, {place.filename}:{place.lineno}" for place in reversed(places)
    )
