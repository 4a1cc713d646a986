from __future__ import annotations

import pickle

import pytest

from gimbalmq.errors import ConfigurationError
from gimbalmq.spark.write_options import Selector, parse_write_options

BASE = {"nameserver": "127.0.0.1:9876", "topic": "orders"}


def test_names_are_compared_whatever_their_case():
    options = parse_write_options({"NameServer": "127.0.0.1:9876", "MAXINFLIGHT": " 7 "})
    assert (options.nameservers, options.in_flight_max) == (("127.0.0.1:9876",), 7)
    assert options.topic is None


@pytest.mark.parametrize(
    ("text", "selector"),
    [
        ("roundRobin", Selector.ROUND_ROBIN),
        ("KEY", Selector.KEY),
        ("faulttolerant", Selector.FAULT_TOLERANT),
    ],
)
def test_selectors_are_known_by_name(text, selector):
    assert parse_write_options(BASE | {"selector": text}).selector is selector


def test_tasks_can_carry_the_options():
    options = parse_write_options(BASE | {"idColumn": "id", "selector": "key"})
    assert pickle.loads(pickle.dumps(options)) == options


def test_keys_and_tls_are_kept_and_the_secret_is_not_shown():
    options = parse_write_options(
        BASE | {"accessKey": "ann", "secretKey": "hidden", "tlsCaFile": "ca.pem"}
    )
    assert options.reach.credentials.secret_key == "hidden"
    assert options.reach.tls.ca_file == "ca.pem"
    assert "hidden" not in repr(options)
    assert pickle.loads(pickle.dumps(options)) == options
    assert hash(options) == hash(pickle.loads(pickle.dumps(options)))


@pytest.mark.parametrize(
    ("given", "part"),
    [
        ({"selector": "random"}, "option 'selector' is 'random': write one of roundRobin, key"),
        ({"maxInFlight": "0"}, "option 'maxInFlight' is '0': write a whole number from 1 on"),
        ({"idColumn": ""}, "option 'idColumn' is empty"),
        ({"topic": "a,b"}, "a write has one topic"),
        ({"topic": "a b"}, "option 'topic':"),
        ({"topic": "%RETRY%g"}, "retry topic"),
        ({"group": "no good"}, "option 'group':"),
        ({"startingOffsets": "earliest"}, "option 'startingOffsets' is for reads"),
        ({"secretKey": "x"}, "option 'secretKey' is given without 'accessKey'"),
        ({"tls": "maybe"}, "option 'tls' is 'maybe'"),
        ({"tls": "false", "tlsCaFile": "ca.pem"}, "option 'tls' is false"),
        ({"tlsKeyFile": "key.pem"}, "needs a certificate"),
        ({"maxInFlights": "3"}, "did you mean 'maxInFlight'?"),
        ({"nameserver": "nowhere:x"}, "option 'nameserver':"),
    ],
)
def test_a_wrong_option_is_named(given, part):
    with pytest.raises(ConfigurationError) as caught:
        parse_write_options(BASE | given)
    assert part in str(caught.value)


def test_a_missing_name_server_is_named():
    with pytest.raises(ConfigurationError, match="option 'nameserver' is missing"):
        parse_write_options({"topic": "orders"}, environment={})
