from __future__ import annotations

import ipaddress
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gimbalmq.errors import ConfigurationError
from gimbalmq.wire.ids import (
    OffsetId,
    UniqueIds,
    format_offset_id,
    host_text,
    month_start_ms,
    pack_host,
    parse_offset_id,
    parse_unique_id,
)

addresses = st.ip_addresses().map(str)


@pytest.mark.rule("W4.6")
@given(addresses, st.integers(0, 65535), st.integers(-(1 << 63), (1 << 63) - 1))
def test_an_offset_id_survives(host, port, offset):
    text = format_offset_id(host, port, offset)
    assert len(text) == (32 if ipaddress.ip_address(host).version == 4 else 56)
    assert parse_offset_id(text) == OffsetId(host, port, offset)
    assert parse_offset_id(text.lower()) == OffsetId(host, port, offset)


@given(addresses, st.integers(0, 65535))
def test_a_packed_host_says_where_it_came_from(host, port):
    assert host_text(pack_host(host, port)) == f"{host}:{port}"


@pytest.mark.parametrize(("host", "port"), [("localhost", 1), ("", 1), ("1.2.3.4", 1 << 32)])
def test_a_name_cannot_be_stored_as_a_host(host, port):
    with pytest.raises(ConfigurationError, match="give an IP address"):
        pack_host(host, port)


@pytest.mark.parametrize("text", ["", "7F", "Z" * 32, "7F " * 10 + "7F", "٣" * 32])
def test_what_is_no_id_is_refused(text):
    with pytest.raises(ConfigurationError, match="offset message id"):
        parse_offset_id(text)
    with pytest.raises(ConfigurationError, match="unique message id"):
        parse_unique_id(text)


@pytest.mark.rule("W4.7")
@given(addresses, st.integers(0, 1 << 22), st.integers(0, (1 << 32) - 1))
def test_a_unique_id_tells_who_made_it_and_when(ip, pid, salt):
    ids = UniqueIds(ip, pid, salt)
    day_30 = 30 * 86_400_000
    first = parse_unique_id(ids.next(1_700_000_000_000 + day_30, 1_700_000_000_000))
    second = parse_unique_id(ids.next(1_700_000_000_000 + day_30, 1_700_000_000_000))
    assert (first.ip, first.pid) == (ip, pid & 0xFFFF)
    assert first.salt & 0xFFFFFFFF == salt
    assert first.ms_since_month_start == day_30
    assert (first.counter, second.counter) == (0, 1)


@pytest.mark.rule("W4.7b")
def test_ids_made_by_many_threads_differ():
    ids = UniqueIds("127.0.0.1", 1, 2)
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda _: ids.next(5, 0), range(20_000)))
    assert len(set(made)) == len(made)


def test_ids_made_at_once_are_those_made_one_by_one():
    one_by_one, at_once = UniqueIds("127.0.0.1", 1, 2), UniqueIds("127.0.0.1", 1, 2)
    assert at_once.many(300, 5, 0) == [one_by_one.next(5, 0) for _ in range(300)]
    assert at_once.next(5, 0) == one_by_one.next(5, 0)


def test_a_month_starts_at_its_first_instant_in_its_own_time_zone():
    now = datetime(2025, 3, 15, 12, 30, 5, 77, tzinfo=UTC)
    assert month_start_ms(now) == datetime(2025, 3, 1, tzinfo=UTC).timestamp() * 1000
    east = timezone(timedelta(hours=8))
    assert month_start_ms(now.astimezone(east)) == month_start_ms(now) - 8 * 3_600_000
