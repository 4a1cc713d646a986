"""One client as the brokers see it: one client id, its routes, heartbeats, and who uses them.

All producers and consumers of a process that share a client id share one instance, because a
broker keeps one registration per connection. The instance keeps the routes of their topics
fresh, heartbeats every broker that a route names, hands change notices to the group they name,
and tells consumers when a route changed or a broker came back. A failure in one group or topic
stays there.

Single owner: everything but `call_soon` runs on the driver's side.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping

import msgspec

from gimbalmq.core.routes import RouteTable
from gimbalmq.errors import (
    AccessDeniedError,
    GimbalError,
    StateError,
    TopicNotFoundError,
)
from gimbalmq.flows.route import (
    DEFAULT_TEMPLATE,
    NameServers,
    TopicTemplate,
    fetch_publish_route,
    fetch_route,
)
from gimbalmq.model.route import MASTER_ID, TopicRoute
from gimbalmq.runtime.broker_requests import BrokerRequests, CheckTransaction
from gimbalmq.runtime.driver import Driver
from gimbalmq.runtime.group_member import GroupMember
from gimbalmq.runtime.registrations import Registrations
from gimbalmq.wire.bodies import HeartbeatData
from gimbalmq.wire.command import Command
from gimbalmq.wire.headers import heartbeat_request, unregister_request

__all__ = ["ClientInstance", "InstanceSettings"]

_log = logging.getLogger("gimbalmq.client")


class InstanceSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Timers of an instance, with Java's names and defaults."""

    poll_name_server_interval_s: float = 30.0
    heartbeat_broker_interval_s: float = 30.0
    mq_client_api_timeout_s: float = 3.0
    #: Leave the subscriptions out of heartbeats to brokers that remember them (5.1.3 on).
    use_heartbeat_v2: bool = False


class ClientInstance:
    """Shared by the producers and consumers of one client id; see the module."""

    def __init__(
        self, client_id: str, nameservers: NameServers, settings: InstanceSettings
    ) -> None:
        self.client_id = client_id
        self.nameservers = nameservers
        self.settings = settings
        self.routes = RouteTable()
        #: Not wrapped: every pull asks.
        self.pull_place = self.routes.pull_place
        #: What runs this instance, once it is attached.
        self.driver: Driver
        self._members: dict[str, GroupMember] = {}
        #: By group: who answers the broker's questions about transactions, if anybody.
        self._producers: dict[str, CheckTransaction | None] = {}
        #: The topics that are sent to, and what each is made from while it does not exist.
        self._published: dict[str, TopicTemplate] = {}
        #: What brokers know of the members.
        self.registrations = Registrations(client_id, self.warn, brief=settings.use_heartbeat_v2)
        self._requests = BrokerRequests(self._members, self._producers, self.routes, self.warn)
        self._warned: dict[str, float] = {}

    def attach(self, driver: Driver) -> None:
        """Start the timers on a driver; called once, on its side."""
        self.driver = driver
        self._poll_routes()
        self._beat()

    # ---- users -------------------------------------------------------------------------------

    def join(self, member: GroupMember, done: Callable[[GimbalError | None], None]) -> None:
        """Add a consumer: fetch its routes, register it with every broker, then say so.

        A topic without a route is waited for; only name servers that cannot be reached, and
        brokers that refuse the keys, are an error.
        """
        if member.group in self._members:
            done(
                StateError(
                    f"group '{member.group}' is already consumed by client '{self.client_id}': "
                    "use one consumer per group and client id"
                )
            )
            return
        self._members[member.group] = member
        waiting = set(member.topics())
        failure: list[GimbalError] = []

        def fetched(topic: str, result: TopicRoute | GimbalError) -> None:
            waiting.discard(topic)
            if isinstance(result, TopicRoute):
                self._learn(result)
                # Known to the instance already, perhaps; but not to this member.
                member.on_route(result)
            elif not isinstance(result, TopicNotFoundError):
                failure.append(result)
            if waiting:
                return
            if failure:
                self._members.pop(member.group, None)
                done(failure[0])
            else:
                self._admit(member, done)

        if not waiting:  # topics may be subscribed to later
            done(None)
        for topic in sorted(waiting):
            self.driver.spawn(
                fetch_route(self.nameservers, topic, self.settings.mq_client_api_timeout_s),
                functools.partial(fetched, topic),
            )

    def _admit(self, member: GroupMember, done: Callable[[GimbalError | None], None]) -> None:
        """Register a member with every broker, once they agree to what it wants."""
        question = member.preflight()
        denials: list[AccessDeniedError] = []

        def registered() -> None:
            if denials:  # other trouble may pass; keys that are wrong stay wrong
                self.leave(member.group, lambda: done(denials[0]))
            else:
                done(None)

        if question is None:
            self.heartbeat(registered, denied=denials.append)
            return

        def answered(result: GimbalError | None) -> None:
            if result is None:
                self.heartbeat(registered, denied=denials.append)
            else:
                self._members.pop(member.group, None)
                done(result)

        self.driver.spawn(question, answered)

    def leave(self, group: str, done: Callable[[], None]) -> None:
        """Unregister a consumer from every broker; `done` also when brokers are unreachable."""
        # First, while it still counts: slaves hear of consumers only.
        self._unregister(
            lambda broker: unregister_request(broker, self.client_id, consumer_group=group), done
        )
        self._members.pop(group, None)

    def add_producer(self, group: str, check: CheckTransaction | None = None) -> None:
        """Register a producer group, with the brokers that are known and with those to come.

        `check` gets a broker's address and its question about a transaction; it must not wait.
        """
        if group in self._producers:
            raise StateError(
                f"group '{group}' already has a producer in client '{self.client_id}': use one "
                "producer per group and client id"
            )
        self._producers[group] = check
        self.heartbeat()

    def remove_producer(self, group: str, done: Callable[[], None]) -> None:
        """Unregister a producer group."""
        self._producers.pop(group, None)
        self._unregister(
            lambda broker: unregister_request(broker, self.client_id, producer_group=group), done
        )

    def _unregister(self, request: Callable[[str], Command], done: Callable[[], None]) -> None:
        self._to_brokers(
            lambda broker, _address: request(broker), lambda _address, _answer: None, done
        )

    # ---- routes ------------------------------------------------------------------------------

    def publish(self, topic: str, template: TopicTemplate = DEFAULT_TEMPLATE) -> None:
        """Keep the route of a topic that is sent to fresh, from now on."""
        self._published[topic] = template

    def publish_to(self, route: TopicRoute, template: TopicTemplate = DEFAULT_TEMPLATE) -> None:
        """As `publish`, with a route that was fetched by whoever sends."""
        self.publish(route.topic, template)
        self._learn(route)

    def refresh_route(self, topic: str) -> None:
        """Ask for one topic now."""
        timeout_s, template = self.settings.mq_client_api_timeout_s, self._published.get(topic)
        if template is None:
            flow = fetch_route(self.nameservers, topic, timeout_s)
        else:
            flow = fetch_publish_route(
                self.nameservers, topic, template=template, timeout_s=timeout_s
            )
        self.driver.spawn(flow, functools.partial(self._refreshed, topic))

    def _refreshed(self, topic: str, result: TopicRoute | GimbalError) -> None:
        if isinstance(result, TopicRoute):
            known = self.routes.route(topic)
            # A name server that just started may not know the topic yet: the template's route
            # never replaces the topic's own.
            if not result.from_template or known is None or known.from_template:
                self._learn(result)
        elif not isinstance(result, TopicNotFoundError):
            self.warn(f"route {topic}", f"route of topic {topic} not refreshed: {result}")

    def _learn(self, route: TopicRoute) -> None:
        known = set(self.routes.addresses())
        changed = self.routes.learn(route)
        if not known.issuperset(self.routes.addresses()):
            self.heartbeat()
        for member in tuple(self._members.values()):
            if changed and not route.from_template and route.topic in member.topics():
                member.on_route(route)

    def _poll_routes(self) -> None:
        # First the next time: one that fails must not be the last.
        self.driver.call_later(self.settings.poll_name_server_interval_s, self._poll_routes)
        topics = {topic for member in self._members.values() for topic in member.topics()}
        for topic in sorted(topics.union(self._published)):
            self.refresh_route(topic)

    # ---- heartbeats --------------------------------------------------------------------------

    def heartbeat(
        self,
        done: Callable[[], None] | None = None,
        *,
        denied: Callable[[AccessDeniedError], None] | None = None,
    ) -> None:
        """Tell every known broker who is here; `denied` hears of those that refuse the keys."""
        beat = self._heartbeat_data()

        def answered(address: str, answer: Command | GimbalError) -> None:
            error = self.registrations.answered(beat, address, answer)
            if denied is not None and isinstance(error, AccessDeniedError):
                denied(error)

        self._to_brokers(
            lambda broker, address: heartbeat_request(
                broker, self.registrations.body(beat, address)
            ),
            answered,
            done,
        )

    def _heartbeat_data(self) -> HeartbeatData:
        consumers = [member.registration() for member in self._members.values()]
        return self.registrations.heartbeat(consumers, self._producers)

    def broker_addresses(self) -> list[tuple[str, str]]:
        """Every known broker set (name, address)."""
        return self.routes.any_addresses(route.topic for route in self.routes)

    def _beat(self) -> None:
        self.driver.call_later(self.settings.heartbeat_broker_interval_s, self._beat)
        self.heartbeat()

    def _to_brokers(
        self,
        request: Callable[[str, str], Command],
        answered: Callable[[str, Command | GimbalError], None],
        done: Callable[[], None] | None,
    ) -> None:
        """Send a request to every broker at once; `done` when all have answered or failed."""
        targets = {
            address: name
            for address, (name, broker_id) in self.routes.addresses().items()
            # Slaves need to know consumers, which may be told to read from them, only.
            if broker_id == MASTER_ID or self._members
        }
        waiting = len(targets)
        if not waiting and done is not None:
            done()

        def one(address: str, answer: Command | GimbalError) -> None:
            nonlocal waiting
            waiting -= 1
            answered(address, answer)
            if not waiting and done is not None:
                done()

        for address, name in targets.items():
            self.driver.call(
                address,
                request(name, address),
                self.settings.mq_client_api_timeout_s,
                functools.partial(one, address),
            )

    # ---- what the driver reports -------------------------------------------------------------

    def on_connected(self, address: str) -> None:
        """Register with a broker as soon as there is a connection to it."""
        name = self.routes.addresses().get(address, ("", 0))[0]
        if not name or not (self._members or self._producers):
            return  # a name server, or nobody to register
        beat = self._heartbeat_data()

        def answered(answer: Command | GimbalError) -> None:
            self.registrations.answered(beat, address, answer)
            for member in tuple(self._members.values()):
                member.on_reconnected()

        self.driver.call(
            address,
            heartbeat_request(name, self.registrations.body(beat, address)),
            self.settings.mq_client_api_timeout_s,
            answered,
        )

    def on_disconnected(self, address: str, error: GimbalError) -> None:
        """A broker forgets who was registered on a connection that is gone."""
        self.registrations.lost(address)
        self.warn(f"connection {address}", f"connection to {address} lost: {error}")

    def on_request(self, address: str, request: Command) -> Command | None:
        """Answer a broker's request, now or later; None when there is nothing to say now."""
        return self._requests.answer(
            address, request, functools.partial(self.driver.answer, address)
        )

    # ---- log ---------------------------------------------------------------------------------

    def warn(self, key: str, text: str, facts: Mapping[str, object] | None = None) -> None:
        """Log a warning, with facts for programs; the same key at most once in a minute."""
        now = self.driver.now().at_s
        if now >= self._warned.get(key, 0.0):
            self._warned[key] = now + 60.0
            _log.warning("%s", text, extra={"gimbalmq": dict(facts)} if facts else None)
