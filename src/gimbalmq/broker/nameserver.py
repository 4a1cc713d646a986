"""The name server's side: which brokers are alive, and where each topic lives.

Follows RouteInfoManager: brokers register with their topics; what a later registration no longer
lists keeps its route until it is deleted; a broker leaves by saying so, by closing its connection
or by silence. Name servers do not talk to each other. Unlike Java it refuses a registration
without a name or an address, which would damage the tables.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Final

import msgspec

from gimbalmq.broker import fields
from gimbalmq.broker.documents import Documents
from gimbalmq.broker.effects import Channel, Close, Effect, RefusalError, Send
from gimbalmq.broker.routes import LiveBroker, RouteTable
from gimbalmq.errors import GimbalError
from gimbalmq.wire import bodies
from gimbalmq.wire.bodies.shape import write_document
from gimbalmq.wire.codes import RequestCode, ResponseCode
from gimbalmq.wire.command import Command, response_to

__all__ = ["BROKER_LIFE_MS", "NameServerMachine", "format_settings", "parse_settings"]

#: A broker is dropped this long after its last registration, unless it announced its own time.
BROKER_LIFE_MS: Final = 120_000
_SCAN_MS: Final = 5_000
_ORDER_NAMESPACE: Final = "ORDER_TOPIC_CONFIG"
_KV_DOCUMENT: Final = "kvConfig"
_KV_ENTRIES_MAX: Final = 100_000

_Handler = Callable[[Command, Channel, int], Command]


class NameServerMachine:
    """Answers brokers and clients; `handle` and `tick` return what is to be sent and closed.

    One owner calls it; times are milliseconds since the epoch and never go back. `documents`
    keeps the key-value configuration; without it that lives as long as the machine.
    """

    def __init__(
        self, documents: Documents | None = None, *, broker_life_ms: int = BROKER_LIFE_MS
    ) -> None:
        self._documents = documents
        self._broker_life_ms = broker_life_ms
        self._routes = RouteTable()
        self._kv: dict[str, dict[str, str]] = _load_kv(documents)
        self._config: dict[str, str] = {"clusterTest": "false", "listenPort": "9876"}
        self._next_scan_ms = 0
        self._handlers = self._table()

    def _table(self) -> dict[int, _Handler]:
        code = RequestCode
        return {
            code.PUT_KV_CONFIG: self._put_kv,
            code.GET_KV_CONFIG: self._get_kv,
            code.DELETE_KV_CONFIG: self._delete_kv,
            code.GET_KVLIST_BY_NAMESPACE: self._list_kv,
            code.REGISTER_BROKER: self._register,
            code.UNREGISTER_BROKER: self._unregister,
            code.QUERY_DATA_VERSION: self._query_version,
            code.BROKER_HEARTBEAT: self._heartbeat,
            code.GET_BROKER_MEMBER_GROUP: self._members,
            code.GET_ROUTEINFO_BY_TOPIC: self._route,
            code.GET_BROKER_CLUSTER_INFO: self._cluster,
            code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self._topics,
            code.GET_TOPICS_BY_CLUSTER: self._topics_of_cluster,
            code.GET_SYSTEM_TOPIC_LIST_FROM_NS: self._system_topics,
            code.GET_UNIT_TOPIC_LIST: self._unit_topics,
            code.GET_HAS_UNIT_SUB_TOPIC_LIST: self._unit_topics,
            code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: self._unit_topics,
            code.DELETE_TOPIC_IN_NAMESRV: self._delete_topic,
            code.REGISTER_TOPIC_IN_NAMESRV: self._register_topic,
            code.WIPE_WRITE_PERM_OF_BROKER: self._wipe_write,
            code.ADD_WRITE_PERM_OF_BROKER: self._add_write,
            code.UPDATE_NAMESRV_CONFIG: self._update_config,
            code.GET_NAMESRV_CONFIG: self._get_config,
        }

    @property
    def next_due_ms(self) -> int:
        """When `tick` has something to do again."""
        return self._next_scan_ms

    def handle(self, request: Command, channel: Channel, now_ms: int) -> list[Effect]:
        """Answer one request; a response or a one-way request is not answered."""
        if request.is_response:
            return []
        handler = self._handlers.get(request.code)
        if handler is None:
            answer = response_to(
                request,
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                f" request type {request.code} not supported",
            )
        else:
            try:
                answer = handler(request, channel, now_ms)
            except RefusalError as refusal:
                answer = response_to(request, refusal.answer_code, refusal.remark)
            except GimbalError as error:
                answer = response_to(request, ResponseCode.SYSTEM_ERROR, str(error))
        return [] if request.is_oneway else [Send(channel, answer)]

    def channel_closed(self, channel: Channel, now_ms: int) -> list[Effect]:
        """Drop the brokers that had registered on this connection."""
        del now_ms
        for broker in self._routes.registered_on(channel):
            self._routes.remove(broker)
        return []

    def tick(self, now_ms: int) -> list[Effect]:
        """Drop silent brokers and close their connections."""
        if now_ms < self._next_scan_ms:
            return []
        self._next_scan_ms = now_ms + _SCAN_MS
        effects: list[Effect] = []
        for broker in self._routes.silent(now_ms):
            self._routes.remove(broker)
            effects.append(Close(broker.channel, f"broker {broker.address} was silent too long"))
        return effects

    # Brokers

    def _register(self, request: Command, channel: Channel, now_ms: int) -> Command:
        body = bytes(request.body)
        crc = fields.number_or(request, "bodyCrc32")
        if crc not in {0, zlib.crc32(body) & 0x7FFFFFFF}:
            raise RefusalError(ResponseCode.SYSTEM_ERROR, "crc32 not match")
        table = bodies.decode_registration(body, compressed=fields.flag(request, "compressed"))
        broker = LiveBroker(
            cluster=fields.text(request, "clusterName"),
            name=fields.text(request, "brokerName"),
            address=fields.text(request, "brokerAddr"),
            broker_id=fields.number(request, "brokerId"),
            ha_address=fields.text_or(request, "haServerAddr"),
            channel=channel,
            seen_ms=now_ms,
            life_ms=fields.number_or(request, "heartbeatTimeoutMillis", self._broker_life_ms),
            version=table.data_version,
            acting_master=fields.flag(request, "enableActingMaster"),
        )
        master = self._routes.register(broker, table.topics)
        answer = response_to(request)
        if master is not None and master.broker_id != broker.broker_id:
            answer.fields["masterAddr"] = master.address
            answer.fields["haServerAddr"] = master.ha_address
        if order := self._kv.get(_ORDER_NAMESPACE):
            answer.body = bodies.encode_kv_table(order)
        return answer

    def _unregister(self, request: Command, channel: Channel, now_ms: int) -> Command:
        del channel, now_ms
        broker = self._routes.find(*_broker_key(request))
        if broker is not None:
            self._routes.remove(broker)
        return response_to(request)

    def _query_version(self, request: Command, channel: Channel, now_ms: int) -> Command:
        del channel
        given = bodies.decode_data_version(request.body)
        broker = self._routes.find(*_broker_key(request))
        changed = broker is None or broker.version != given
        if broker is not None and not changed:
            broker.seen_ms = now_ms
        known = b"" if broker is None else bodies.encode_data_version(broker.version)
        return response_to(request, fields={"changed": str(changed).lower()}, body=known)

    def _heartbeat(self, request: Command, channel: Channel, now_ms: int) -> Command:
        del channel
        broker = self._routes.find(*_broker_key(request))
        if broker is not None:
            broker.seen_ms = now_ms
        return response_to(request)

    def _members(self, request: Command, channel: Channel, now_ms: int) -> Command:
        del channel, now_ms
        members = self._routes.broker_set(
            fields.text_or(request, "clusterName"), fields.text(request, "brokerName")
        )
        return response_to(request, body=bodies.encode_broker_members(members))

    # Topics

    def _route(self, request: Command, channel: Channel, now_ms: int) -> Command:
        del channel, now_ms
        topic = fields.text(request, "topic")
        order = self._kv.get(_ORDER_NAMESPACE, {}).get(topic, "")
        route = self._routes.route(topic, order)
        if route is None:
            raise RefusalError(
                ResponseCode.TOPIC_NOT_EXIST,
                f"No topic route info in name server for the topic: {topic}",
            )
        return response_to(request, body=bodies.encode_route(route))

    def _cluster(self, request: Command, channel: Channel, now_ms: int) -> Command:
        del channel, now_ms
        return response_to(request, body=bodies.encode_cluster(self._routes.cluster()))

    def _topics(self, request: Command, channel: Channel, now_ms: int) -> Command:
        del channel, now_ms
        return response_to(request, body=bodies.encode_topic_list(self._routes.topics()))

    def _topics_of_cluster(self, request: Command, channel: Channel, now_ms: int) -> Command:
        del channel, now_ms
        topics = self._routes.topics_of_cluster(fields.text(request, "cluster"))
        return response_to(request, body=bodies.encode_topic_list(topics))

    def _system_topics(self, request: Command, channel: Channel, now_ms: int) -> Command:
        del channel, now_ms
        info = self._routes.cluster()
        names = [*info.clusters, *(name for names in info.clusters.values() for name in names)]
        addresses = (one.any_address for one in info.brokers.values())
        body = write_document({"topicList": names, "brokerAddr": next(addresses, None)})
        return response_to(request, body=body)

    def _unit_topics(self, request: Command, channel: Channel, now_ms: int) -> Command:
        del channel, now_ms
        unit = {
            RequestCode.GET_UNIT_TOPIC_LIST: (1, 0),
            RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: (2, 0),
            RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: (2, 1),
        }[RequestCode(request.code)]
        topics = self._routes.topics_with_flag(*unit)
        return response_to(request, body=bodies.encode_topic_list(topics))

    def _delete_topic(self, request: Command, channel: Channel, now_ms: int) -> Command:
        del channel, now_ms
        self._routes.delete_topic(
            fields.text(request, "topic"), fields.text_or(request, "clusterName")
        )
        return response_to(request)

    def _register_topic(self, request: Command, channel: Channel, now_ms: int) -> Command:
        del channel, now_ms
        topic = fields.text(request, "topic")
        route = bodies.decode_route(topic, request.body)
        self._routes.add_topic(topic, route.queues)
        return response_to(request)

    def _wipe_write(self, request: Command, channel: Channel, now_ms: int) -> Command:
        del channel, now_ms
        count = self._routes.set_writable(fields.text(request, "brokerName"), writable=False)
        return response_to(request, fields={"wipeTopicCount": str(count)})

    def _add_write(self, request: Command, channel: Channel, now_ms: int) -> Command:
        del channel, now_ms
        count = self._routes.set_writable(fields.text(request, "brokerName"), writable=True)
        return response_to(request, fields={"addTopicCount": str(count)})

    # Key-value configuration

    def _put_kv(self, request: Command, channel: Channel, now_ms: int) -> Command:
        del channel, now_ms
        namespace, key = fields.text(request, "namespace"), fields.text(request, "key")
        if sum(map(len, self._kv.values())) >= _KV_ENTRIES_MAX:
            raise RefusalError(
                ResponseCode.SYSTEM_ERROR, f"there are already {_KV_ENTRIES_MAX} entries"
            )
        self._kv.setdefault(namespace, {})[key] = fields.text_or(request, "value")
        self._save_kv()
        return response_to(request)

    def _get_kv(self, request: Command, channel: Channel, now_ms: int) -> Command:
        del channel, now_ms
        namespace, key = fields.text(request, "namespace"), fields.text(request, "key")
        value = self._kv.get(namespace, {}).get(key)
        if value is None:
            raise RefusalError(
                ResponseCode.QUERY_NOT_FOUND,
                f"No config item, Namespace: {namespace} Key: {key}",
            )
        return response_to(request, fields={"value": value})

    def _delete_kv(self, request: Command, channel: Channel, now_ms: int) -> Command:
        del channel, now_ms
        namespace, key = fields.text(request, "namespace"), fields.text(request, "key")
        if self._kv.get(namespace, {}).pop(key, None) is not None:
            self._save_kv()
        return response_to(request)

    def _list_kv(self, request: Command, channel: Channel, now_ms: int) -> Command:
        del channel, now_ms
        namespace = fields.text(request, "namespace")
        table = self._kv.get(namespace)
        if table is None:
            raise RefusalError(
                ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {namespace}"
            )
        return response_to(request, body=bodies.encode_kv_table(table))

    def _save_kv(self) -> None:
        if self._documents is not None:
            self._documents.save(_KV_DOCUMENT, write_document({"configTable": self._kv}))

    def _update_config(self, request: Command, channel: Channel, now_ms: int) -> Command:
        del channel, now_ms
        self._config |= parse_settings(bytes(request.body))
        return response_to(request)

    def _get_config(self, request: Command, channel: Channel, now_ms: int) -> Command:
        del channel, now_ms
        return response_to(request, body=format_settings(self._config))


def _broker_key(request: Command) -> tuple[str, str]:
    return fields.text(request, "clusterName"), fields.text(request, "brokerAddr")


def _load_kv(documents: Documents | None) -> dict[str, dict[str, str]]:
    data = None if documents is None else documents.load(_KV_DOCUMENT)
    if data is None:
        return {}
    read = msgspec.json.decode(data, type=dict[str, dict[str, dict[str, str]]])
    return read.get("configTable", {})


def parse_settings(data: bytes) -> dict[str, str]:
    r"""Read `key=value` lines, as configuration requests carry them.

    >>> parse_settings(b"# comment\nbrokerName=broker-a\n")
    {'brokerName': 'broker-a'}
    """
    settings: dict[str, str] = {}
    for line in data.decode("utf-8", "replace").splitlines():
        key, separator, value = line.partition("=")
        if separator and key.strip() and not key.lstrip().startswith("#"):
            settings[key.strip()] = value.strip()
    return settings


def format_settings(settings: dict[str, str]) -> bytes:
    """`key=value` lines, sorted."""
    return "".join(f"{key}={settings[key]}\n" for key in sorted(settings)).encode()
