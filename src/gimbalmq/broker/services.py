"""A name server and a broker as running services: machine, store, front and registration joined.

Both live in the event loop that starts them. `crash` ends them as a killed process would: no
good-bye, nothing saved.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import random
import socket
import ssl
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from gimbalmq.broker.access import AccessControl, Account
from gimbalmq.broker.broker import BrokerMachine
from gimbalmq.broker.documents import JsonDocuments, KeptInMemory
from gimbalmq.broker.effects import Effect, Send
from gimbalmq.broker.nameserver import NameServerMachine
from gimbalmq.broker.peer import Limits
from gimbalmq.broker.registration import Registration
from gimbalmq.broker.server import Front
from gimbalmq.broker.settings import BrokerSettings
from gimbalmq.broker.store import Documents, FileStore, StoreError, StoreOptions, open_store
from gimbalmq.telemetry.endpoint import Endpoint, Page, metrics_page
from gimbalmq.telemetry.exposition import expose
from gimbalmq.telemetry.families import Family
from gimbalmq.wire.codes import ResponseCode

__all__ = ["BrokerService", "NameServerService"]

_logger: Final = logging.getLogger("gimbalmq.broker")

#: A loop that does not look at its tables within this time is too busy; the page says so.
_METRICS_S = 5.0


class NameServerService:
    """A name server on a listening socket; `folder` keeps its key-value configuration."""

    def __init__(
        self,
        listener: socket.socket,
        *,
        folder: Path | None = None,
        limits: Limits | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        host, port = listener.getsockname()[:2]
        self.address = f"{host}:{port}"
        self._listener = listener
        documents = KeptInMemory() if folder is None else JsonDocuments(Documents(folder))
        self._front = Front(
            NameServerMachine(documents),
            name=f"name server {self.address}",
            limits=limits,
            tls=tls,
        )

    async def start(self) -> None:
        """Serve."""
        self._front.start(self._listener)

    async def stop(self) -> None:
        """End."""
        self._front.stop()

    async def crash(self) -> None:
        """End as a killed process would."""
        self._front.stop()


class BrokerService:
    """A broker on a listening socket; `folder` keeps its messages and configuration."""

    def __init__(
        self,
        listener: socket.socket,
        settings: BrokerSettings,
        nameservers: Iterable[str],
        *,
        folder: Path | None = None,
        store_options: StoreOptions | None = None,
        accounts: Iterable[Account] = (),
        limits: Limits | None = None,
        tls: ssl.SSLContext | None = None,
        seed: int | None = None,
        metrics_port: int | None = None,
    ) -> None:
        port = listener.getsockname()[1]
        self._metrics_port = metrics_port
        self.metrics: Endpoint | None = None
        self.settings = msgspec.structs.replace(settings, port=port)
        self._listener = listener
        # `_settle` waits for the disk once for all answers of a round.
        options = msgspec.structs.replace(store_options or StoreOptions(), group_commit=True)
        self.store: FileStore = open_store(
            folder, store_host=(settings.host, port), options=options
        )
        listed = list(accounts)
        # Not for secrets: which queue a message without a wish gets, and parts of ids.
        chance = random.Random(seed)  # noqa: S311
        self.machine = BrokerMachine(
            self.settings,
            self.store,
            JsonDocuments(self.store.documents),
            chance,
            time.time_ns() // 1_000_000,
            access=AccessControl(listed) if listed else None,
        )
        self._front = Front(
            self.machine,
            name=f"broker {self.settings.name}",
            limits=limits,
            tls=tls,
            settle=self._settle,
            on_tick=self.store.tick,
        )
        self.registration = Registration(nameservers, self.settings, lambda: self.machine.topics)
        self._lookups: set[asyncio.Task[None]] = set()
        self._trouble = ""

    @property
    def connections(self) -> int:
        """How many clients are connected."""
        return self._front.connections

    async def start(self) -> None:
        """Serve, and register with the name servers."""
        if self._metrics_port is not None:
            page = functools.partial(self._metrics_page, asyncio.get_running_loop())
            self.metrics = Endpoint({"/metrics": page}, self._metrics_port).start()
        self._front.on_announce = self.registration.announce
        self._front.on_lookup = self._look_up
        self._front.start(self._listener)
        self.registration.start()

    async def stop(self) -> None:
        """Say good-bye, save everything, end."""
        await self._stop_metrics()
        await self.registration.stop()
        self._front.stop()
        try:
            self.machine.save()
        except StoreError as error:
            _logger.warning("broker %s could not save all it knows: %s", self.settings.name, error)
        self.store.close()

    async def crash(self) -> None:
        """End as a killed process would: what is only in memory is gone."""
        await self._stop_metrics()
        self._front.stop()
        await self.registration.stop(goodbye=False)
        self.store.close()

    def _metrics_page(self, loop: asyncio.AbstractEventLoop) -> Page:
        """On a thread of the endpoint: the tables are looked at on the loop that owns them."""

        async def look() -> list[Family]:
            return self.machine.families(self.connections)

        looked = asyncio.run_coroutine_threadsafe(look(), loop)
        return metrics_page(expose(looked.result(_METRICS_S)))

    async def _stop_metrics(self) -> None:
        if self.metrics is not None:
            # Not on the loop: a page that is being made waits for it.
            await asyncio.to_thread(self.metrics.stop)

    def _settle(self, effects: list[Effect]) -> list[Effect]:
        """Make safe what the next answers acknowledge; if that fails, they say so."""
        trouble = self.machine.trouble
        if self.store.flush_wanted:
            try:
                self.store.flush()
            except StoreError as error:
                trouble = str(error)
                effects = [_unsafe(effect, trouble) for effect in effects]
        if trouble and trouble != self._trouble:
            _logger.warning("broker %s: %s", self.settings.name, trouble)
        self._trouble = trouble
        return effects

    def _look_up(self, topic: str) -> None:
        task = asyncio.create_task(self._answer_lookup(topic))
        self._lookups.add(task)
        task.add_done_callback(self._lookups.discard)

    async def _answer_lookup(self, topic: str) -> None:
        queues = await self.registration.lookup(topic)
        self._front.perform(self.machine.routed(topic, queues, self._front.now_ms()))


def _unsafe(effect: Effect, why: str) -> Effect:
    """The answer to a send whose message is stored, but not on the disk."""
    match effect:
        case Send(channel, command) if "queueOffset" in command.fields and not command.code:
            code = int(ResponseCode.FLUSH_DISK_TIMEOUT)
            return Send(channel, msgspec.structs.replace(command, code=code, remark=why))
        case _:
            return effect
