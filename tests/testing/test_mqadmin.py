from __future__ import annotations

from pathlib import Path

import pytest

from gimbalmq.errors import EngineError
from gimbalmq.testing.mqadmin import mqadmin, mqadmin_all


def test_commands_share_a_process_and_are_told_apart(rocketmq, rocketmq_version, topic):
    before = set(Path().iterdir())
    topics, clusters = mqadmin_all(
        rocketmq.nameserver, [("topicList",), ("clusterList",)], version=rocketmq_version
    )
    assert topic in topics
    assert "DefaultCluster" in clusters
    assert topic not in clusters
    assert set(Path().iterdir()) == before


def test_a_command_that_takes_too_long_is_named(rocketmq, rocketmq_version):
    with pytest.raises(EngineError, match="topicList took more than"):
        mqadmin(rocketmq.nameserver, "topicList", version=rocketmq_version, timeout_s=0.01)
