"""The options of a producer, of either kind: checked once, in one place.

Decides what the options mean; starts nothing.
"""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Final, Generic, Literal, TypeVar, Unpack

import msgspec

from gimbalmq.client.batching import Batching
from gimbalmq.client.callbacks import check_callback
from gimbalmq.client.option_kinds import options_checked
from gimbalmq.client.options import ClientTuning, checked_access, instance_settings
from gimbalmq.client.outbound import SenderSettings
from gimbalmq.client.producer_life import ProducerLife
from gimbalmq.client.shared import wire_client_id
from gimbalmq.core.fault import FaultTolerance
from gimbalmq.core.identity import FALLBACK_STRATEGY
from gimbalmq.errors import ConfigurationError
from gimbalmq.flows.outgoing import SendSettings
from gimbalmq.flows.send import RETRY_CODES, SendPolicy
from gimbalmq.wire.codes import CompressionType
from gimbalmq.wire.compression import compress
from gimbalmq.wire.names import TEMPLATE_TOPIC, check_group
from gimbalmq.wire.trace import TRACE_TOPIC

__all__ = ["ProducerOptions"]

_T = TypeVar("_T")
_CheckT = TypeVar("_CheckT")

#: Java's name for "the user did not choose one".
_DEFAULT_GROUP: Final = "DEFAULT_PRODUCER"


class ProducerOptions(ProducerLife, ABC, Generic[_CheckT]):
    """What a producer was told; `Producer` describes each option."""

    @options_checked(ClientTuning)
    def __init__(
        self,
        group: str,
        *,
        nameserver: str | None = None,
        timeout_s: float = 3.0,
        retries: int = 2,
        fault_tolerance: bool | FaultTolerance = False,
        client_id: str | None = None,
        check: _CheckT | None = None,
        batching: bool | Batching = False,
        retry_times_when_send_async_failed: int = 2,
        retry_another_broker_when_not_store_ok: bool = False,
        retry_response_codes: Iterable[int] = (),
        send_msg_max_timeout_per_request_s: float | None = None,
        back_pressure_for_async_send_num: int = 1024,
        back_pressure_for_async_send_size: int = 100 << 20,
        max_message_size: int = 4 << 20,
        compress_msg_body_over_howmuch: int = 4096,
        compress_type: Literal["ZLIB", "LZ4", "ZSTD"] = "ZLIB",
        compress_level: int = 5,
        enable_trace: bool = False,
        trace_topic: str = TRACE_TOPIC,
        create_topic_key: str = TEMPLATE_TOPIC,
        default_topic_queue_nums: int = 4,
        poll_name_server_interval_s: float = 30.0,
        heartbeat_broker_interval_s: float = 30.0,
        **tuning: Unpack[ClientTuning],
    ) -> None:
        self._access = checked_access(nameserver, tuning, ClientTuning)
        self.group = _own_group(group)
        check_group(self._access.namespace.wire(group))
        policy = SendPolicy(
            retry_not_store_ok=retry_another_broker_when_not_store_ok,
            request_timeout_s=send_msg_max_timeout_per_request_s,
        )
        tries = retries, retry_times_when_send_async_failed
        sync_policy, async_policy = _policies(policy, tries, retry_response_codes)
        self._settings = SenderSettings(
            group=group,
            namespace=self._access.namespace.name,
            timeout_s=timeout_s,
            limits=SendSettings(
                max_message_size=max_message_size,
                compress_msg_body_over_howmuch=compress_msg_body_over_howmuch,
                compress_type=_compression(compress_type, compress_level),
                compress_level=compress_level,
                default_topic_queue_nums=default_topic_queue_nums,
                create_topic_key=create_topic_key,
            ),
            sync_policy=sync_policy,
            async_policy=async_policy,
            tolerance=_option(fault_tolerance, FaultTolerance),
            in_flight_max=back_pressure_for_async_send_num,
            in_flight_bytes_max=back_pressure_for_async_send_size,
            batching=_option(batching, Batching),
            trace_topic=trace_topic if enable_trace else None,
        )
        self._check = _checked(check)
        self._instance_settings = instance_settings(
            {
                "poll_name_server_interval_s": poll_name_server_interval_s,
                "heartbeat_broker_interval_s": heartbeat_broker_interval_s,
                **tuning,
            }
        )
        # A producer needs no strategy: one that joins a consumer's instance has its id from then.
        self.client_id = wire_client_id(client_id, FALLBACK_STRATEGY)
        self._prepare_life()

    @abstractmethod
    def _prepare_life(self) -> None:
        """Set up what starting needs."""

    def _limit_s(self, timeout_s: float | None) -> float:
        """How long one call may take: what it says itself, else what the producer was told."""
        return self._settings.timeout_s if timeout_s is None else timeout_s


def _own_group(group: str) -> str:
    if group == _DEFAULT_GROUP:
        raise ConfigurationError(f"'{group}' is reserved: give the producer a group of its own")
    return check_group(group)


def _checked(check: _CheckT | None) -> _CheckT | None:
    if check is not None:
        check_callback("check", check, "a message")
    return check


def _policies(
    common: SendPolicy, retries: tuple[int, int], added_codes: Iterable[int]
) -> tuple[SendPolicy, SendPolicy]:
    """When sync and pipelined sends try again; `retries` are the numbers of either."""
    sync_retries, async_retries = retries
    if min(retries) < 0:
        raise ConfigurationError("the number of retries is below 0: give 0 or more")
    added = frozenset(added_codes)
    replace = msgspec.structs.replace
    return (
        replace(common, attempts_max=1 + sync_retries, retry_codes=RETRY_CODES | added),
        # A refusal is final when nobody waits, as in Java, unless the user says otherwise.
        replace(common, attempts_max=1 + async_retries, retry_codes=added),
    )


def _option(given: bool | _T, kind: type[_T]) -> _T | None:  # noqa: FBT001 - what users write
    """What an option that is on, off or an object of its own stands for."""
    if isinstance(given, bool):
        return kind() if given else None
    return given


def _compression(name: str, level: int) -> CompressionType:
    known = {one.name: one for one in CompressionType if one is not CompressionType.LEGACY_ZLIB}
    if name not in known:
        raise ConfigurationError(f"compress_type is '{name}': there are {', '.join(known)}")
    try:
        compress(b"x", known[name], level=level)
    except ConfigurationError:  # says what to install
        raise
    except (ValueError, zlib.error) as error:
        raise ConfigurationError(
            f"compress_level is {level}, which {name} does not have ({error}): leave it out, or "
            "give 1 (quick) to 9 (small)"
        ) from error
    return known[name]
