import pytest

from gimbalmq.errors import ConfigurationError, UnreachableError
from gimbalmq.transport.nameservers import NameServerSource, find_nameservers, instance_namespace
from transport.server import closed_port

DOMAIN = {"ROCKETMQ_NAMESRV_DOMAIN": "addresses.example.com"}


@pytest.mark.parametrize(
    ("given", "domain", "environment", "wanted"),
    [
        ("a:1", "x", {"NAMESRV_ADDR": "b:1"} | DOMAIN, NameServerSource(("a:1",))),
        (None, "x", {"NAMESRV_ADDR": "b:1"} | DOMAIN, NameServerSource(("b:1",))),
        (None, "x:81", DOMAIN, NameServerSource(server="x:81", path="/rocketmq/nsaddr")),
        (
            None,
            None,
            DOMAIN | {"ROCKETMQ_NAMESRV_DOMAIN_SUBGROUP": "east"},
            NameServerSource(server="addresses.example.com:8080", path="/rocketmq/east"),
        ),
    ],
)
def test_the_first_way_in_which_name_servers_are_given_counts(given, domain, environment, wanted):
    assert find_nameservers(given, domain, environment) == wanted


def test_without_any_way_the_error_names_them_all():
    with pytest.raises(ConfigurationError) as refused:
        find_nameservers(None, None, {})
    for way in ("nameserver=", "NAMESRV_ADDR", "namesrv_domain", "ROCKETMQ_NAMESRV_DOMAIN"):
        assert way in str(refused.value)


def test_an_empty_list_is_not_looked_for_elsewhere():
    with pytest.raises(
        ConfigurationError, match=r"no name server is known: .* --nameserver host:9876"
    ):
        find_nameservers("", "x", {})


def test_an_address_server_that_is_down_is_named_with_what_to_do():
    source = find_nameservers(None, f"127.0.0.1:{closed_port()}", {})
    assert source.changes
    with pytest.raises(UnreachableError, match=r"address server .*pass nameserver='host:9876'"):
        source.addresses_now()


@pytest.mark.parametrize(
    ("address", "namespace"),
    [
        ("http://MQ_INST_12_ab.mq.example.com:80", "MQ_INST_12_ab"),
        ("MQ_INST_12_ab.mq.example.com:80", "MQ_INST_12_ab"),
        ("mq.example.com:80", None),
        (None, None),
    ],
)
def test_the_namespace_of_an_instances_endpoint(address, namespace):
    assert instance_namespace(address, {}) == namespace
    assert instance_namespace(None, {"NAMESRV_ADDR": address or ""}) == namespace


def test_the_namespace_is_that_of_the_address_that_is_used():
    environment = {"NAMESRV_ADDR": "http://MQ_INST_1_a.example.com:80"}
    assert instance_namespace("a:1", environment) is None
