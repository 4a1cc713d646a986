"""The pages of a worker's health endpoint, from what is known of its children. Pure.

`/live`: fine unless a child was given up, says that it is stuck, or says nothing for a while;
restart the worker when not. A child that is starting or leaving has its own time limit: it is fine.
`/ready`: fine while at least one child consumes. `/metrics`: for Prometheus. `/`: everything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from gimbalmq.cli.worker.machine import ChildState
from gimbalmq.cli.worker.supervisor import ChildNow, WorkerNow
from gimbalmq.telemetry.catalogue import WORKER_CHILDREN, WORKER_RELOADS, WORKER_RESTARTS
from gimbalmq.telemetry.endpoint import Page, json_page, metrics_page
from gimbalmq.telemetry.exposition import expose
from gimbalmq.telemetry.families import Family, labelled

__all__ = ["families", "live", "pages", "ready"]

#: A child that consumes and has missed every question for so long is stuck, not busy.
_SILENT_S_MAX: Final = 15.0


def pages(look: Callable[[], WorkerNow]) -> dict[str, Callable[[], Page]]:
    """What makes each page."""

    def live_page() -> Page:
        ok, reasons = live(look())
        return json_page({"live": ok, "reasons": reasons}, ok=ok)

    def ready_page() -> Page:
        ok, reasons = ready(look())
        return json_page({"ready": ok, "reasons": reasons}, ok=ok)

    return {
        "/": lambda: json_page(_detail(look())),
        "/live": live_page,
        "/ready": ready_page,
        "/metrics": lambda: metrics_page(expose(families(look()))),
    }


def live(worker: WorkerNow) -> tuple[bool, list[str]]:
    """Whether a restart of the whole worker is not called for, and why it is."""
    reasons = []
    for child in worker.children:
        if child.state == ChildState.GIVEN_UP.value:
            reasons.append(f"child {child.number} was given up")
        elif child.state != ChildState.READY.value:
            continue
        elif child.status is None and child.silent_s >= _SILENT_S_MAX:
            reasons.append(f"child {child.number} has not answered for {child.silent_s:.0f} s")
        elif child.status is not None and not child.status.live:
            reasons += [f"child {child.number}: {reason}" for reason in child.status.reasons]
    return not reasons, reasons


def ready(worker: WorkerNow) -> tuple[bool, list[str]]:
    """Whether at least one child consumes, and why the others do not."""
    reasons = ["the worker is stopping"] if worker.stopping else []
    reasons += [f"child {one.number}: {why}" for one in worker.children if (why := _idle(one))]
    consuming = sum(1 for child in worker.children if not _idle(child))
    return consuming > 0 and not worker.stopping, reasons


def _idle(child: ChildNow) -> str:
    """Why a child does not consume, or ""."""
    if child.state != ChildState.READY.value:
        return child.state
    if child.status is None:
        return "does not answer"
    return "" if child.status.ready else "; ".join(child.status.reasons) or "not ready"


def families(worker: WorkerNow) -> list[Family]:
    """The worker's own metrics, and those of its children, told apart by the label `worker`."""
    states = Counter(child.state for child in worker.children)
    found = [
        WORKER_CHILDREN.family(
            WORKER_CHILDREN.sample(states[state.value], state.value) for state in ChildState
        ),
        WORKER_RESTARTS.family(
            WORKER_RESTARTS.sample(child.restarts, str(child.number)) for child in worker.children
        ),
        WORKER_RELOADS.family(
            WORKER_RELOADS.sample(worker.reloads.get(outcome, 0), outcome)
            for outcome in ("completed", "halted")
        ),
    ]
    for child in worker.children:
        if child.status is not None:
            found += labelled(child.status.families, "worker", str(child.number))
    return found


def _detail(worker: WorkerNow) -> dict[str, Any]:
    return {
        "live": live(worker)[0],
        "ready": ready(worker)[0],
        "stopping": worker.stopping,
        "reloading": worker.reloading,
        "children": [
            {
                "number": child.number,
                "state": child.state,
                "pid": child.pid,
                "client_id": child.client_id,
                "restarts": child.restarts,
                "queues": None if child.status is None else child.status.queues,
                "reasons": [] if child.status is None else child.status.reasons,
            }
            for child in worker.children
        ],
    }
