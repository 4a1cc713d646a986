import socket

import pytest

from gimbalmq.errors import ConfigurationError, TransportError
from gimbalmq.transport.address import (
    local_ip,
    numeric,
    parse_address,
    parse_nameservers,
    resolve,
    split_address,
)


@pytest.mark.rule("W3.1c")
@pytest.mark.parametrize(
    ("address", "parts"),
    [
        ("127.0.0.1:9876", ("127.0.0.1", 9876)),
        ("mq.example.com:1", ("mq.example.com", 1)),
        ("[::1]:9876", ("::1", 9876)),
        ("fe80::1:65535", ("fe80::1", 65535)),
    ],
)
def test_the_last_colon_separates_host_and_port(address, parts):
    assert split_address(address) == parts


@pytest.mark.parametrize(
    "address", ["", "host", "host:", ":9876", "host:0", "host:65536", "host:x", "host:-1", "host:²"]
)
def test_what_is_no_address_is_refused_with_an_example(address):
    with pytest.raises(ConfigurationError, match=r"write host:port, for example 127\.0\.0\.1:9876"):
        split_address(address)


def test_an_address_may_be_written_as_a_url():
    assert parse_address(" http://mq:9876 ") == "mq:9876"


def test_several_name_servers_are_separated_by_semicolons_and_listed_once():
    assert parse_nameservers("a:1; b:2;;a:1") == ("a:1", "b:2")


def test_name_servers_that_are_separated_by_commas_are_not_taken_for_one():
    with pytest.raises(ConfigurationError, match="'a:1,b:2' is not an address: several are"):
        parse_nameservers("a:1,b:2")


def test_without_an_argument_the_environment_is_read():
    assert parse_nameservers(None, {"NAMESRV_ADDR": "a:1;b:2"}) == ("a:1", "b:2")


def test_the_argument_wins_over_the_environment():
    assert parse_nameservers("b:2", {"NAMESRV_ADDR": "a:1"}) == ("b:2",)


@pytest.mark.parametrize("given", [None, "", " ; "])
def test_no_name_server_at_all_is_an_error_that_says_where_to_put_one(given):
    with pytest.raises(ConfigurationError, match=r"pass nameserver=.*NAMESRV_ADDR"):
        parse_nameservers(given, {})


def test_a_host_that_does_not_exist_is_named():
    with pytest.raises(TransportError, match=r"no-such-host\.invalid:1.*address_map") as caught:
        resolve("no-such-host.invalid:1")
    assert caught.value.address == "no-such-host.invalid:1"


def test_the_family_of_an_address_is_found():
    assert resolve("127.0.0.1:5") == (socket.AF_INET, ("127.0.0.1", 5))
    assert resolve("[::1]:5") == (socket.AF_INET6, ("::1", 5))


def test_only_a_number_is_known_without_asking():
    assert numeric("127.0.0.1:5") == (socket.AF_INET, ("127.0.0.1", 5))
    assert numeric("[::1]:5") == (socket.AF_INET6, ("::1", 5))
    assert numeric("localhost:5") is None


def test_of_several_addresses_the_first_of_version_4_is_used_as_in_java(monkeypatch):
    found = [
        (family, socket.SOCK_STREAM, 6, "", (host, 5))
        for family, host in [
            (socket.AF_INET6, "::1"),
            (socket.AF_INET, "127.0.0.2"),
            (socket.AF_INET, "127.0.0.3"),
        ]
    ]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_options: found)
    assert resolve("both:5") == (socket.AF_INET, ("127.0.0.2", 5))
    del found[1:]
    assert resolve("only-version-6:5") == (socket.AF_INET6, ("::1", 5))


@pytest.mark.parametrize("host", ["a..b", ".a", "x" * 64, "\udc80"])
def test_a_host_that_cannot_be_looked_up_is_no_address(host):
    with pytest.raises(ConfigurationError, match="is not an address"):
        split_address(f"{host}:9876")


def test_the_own_address_is_one():
    socket.inet_aton(local_ip())
