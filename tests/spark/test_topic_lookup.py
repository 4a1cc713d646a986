from __future__ import annotations

import pytest

from gimbalmq.broker import EmbeddedCluster
from gimbalmq.errors import ConfigurationError
from gimbalmq.flows.route import NameServers
from gimbalmq.runtime.inline import ConnectionPool, run_inline
from gimbalmq.spark.options import parse_read_options
from gimbalmq.spark.stream_options import parse_stream_options
from gimbalmq.spark.topic_lookup import asks_for, find_route, find_topics


@pytest.fixture(scope="module")
def cluster():
    with EmbeddedCluster() as running:
        for topic in ("orders", "refunds"):
            running.create_topic(topic, queues=1)
        yield running


def parse(**given):
    return parse_read_options({"nameserver": "127.0.0.1:1"} | given, {})


def run(find, **given):
    options = parse(**given)
    pool = ConnectionPool()
    try:
        return run_inline(find(NameServers(options.nameservers), options), pool)
    finally:
        pool.close()


def test_a_pattern_that_matches_nothing_tells_what_there_is(cluster):
    words = r"'x.*' and matches none .* it must match the whole name; there are orders, refunds$"
    with pytest.raises(ConfigurationError, match=words):
        run(find_topics, nameserver=cluster.nameserver, topicPattern="x.*")


def test_many_topics_are_not_all_told():
    with EmbeddedCluster() as cluster:
        for number in range(7):
            cluster.create_topic(f"shop-{number}", queues=1)
        with pytest.raises(ConfigurationError, match="shop-3, shop-4 and 2 more"):
            run(find_topics, nameserver=cluster.nameserver, topicPattern="shop")


@pytest.mark.parametrize("given", [{"topic": "orders"}, {"topicPattern": "orders"}])
def test_the_address_of_a_broker_is_recognised(cluster, given):
    def find(nameservers, options):
        if options.topic_pattern is None:
            return find_route(nameservers, "orders", options)
        return find_topics(nameservers, options)

    with pytest.raises(ConfigurationError, match=r"option 'nameserver' is .* is it a broker's"):
        run(find, nameserver=cluster.brokers[0].address, **given)


@pytest.mark.parametrize(
    ("given", "topic", "meant"),
    [
        ({"topic": "orders,refunds"}, "refunds", True),
        ({"topic": "orders"}, "refunds", False),
        ({"topicPattern": "ord.*"}, "orders", True),
        ({"topicPattern": "ord"}, "orders", False),
        ({"topicPattern": ".*"}, "%RETRY%orders", False),
        ({"topicPattern": "%RETRY%.*"}, "%RETRY%orders", True),
        ({"topicPattern": ".*", "namespace": "shop"}, "shop%orders", True),
        ({"topicPattern": ".*", "namespace": "shop"}, "orders", False),
        ({"topic": "orders", "namespace": "shop"}, "shop%orders", True),
    ],
)
def test_options_say_which_topics_they_mean(given, topic, meant):
    assert asks_for(parse(**given), topic) is meant


def test_a_member_also_means_the_retry_topic_of_its_group():
    given = {"nameserver": "127.0.0.1:1", "topic": "orders", "group": "g", "groupMode": "member"}
    assert asks_for(parse_stream_options(given, {}).read, "%RETRY%g")
    assert not asks_for(parse_stream_options(given, {}).read, "%RETRY%other")
