"""Strategies that a consumer refuses, because members could not tell that theirs differ."""

import pytest

from gimbalmq import LitePullConsumer, PullConsumer, PushConsumer, balance
from gimbalmq.errors import ConfigurationError

FUNCTIONS = {"zone_of_queue": lambda queue: queue.broker, "zone_of_member": lambda one: one}


@pytest.mark.parametrize("kind", [PushConsumer, LitePullConsumer, PullConsumer])
def test_zones_by_functions_need_a_version(kind):
    zoned = balance.strategy("ZONED", **FUNCTIONS)
    with pytest.raises(ConfigurationError, match="allocation ZONED has zone_of_queue and"):
        kind("billing", nameserver="127.0.0.1:1", allocation=zoned)
    named = balance.strategy("ZONED", **FUNCTIONS, zones_version="1")
    consumer = kind("billing", nameserver="127.0.0.1:1", client_id="ann", allocation=named)
    assert consumer.client_id == f"ann@gmq1-{named.name}"
