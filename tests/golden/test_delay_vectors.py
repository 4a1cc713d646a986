"""The lines of wire.jsonl about delays: kinds "delay_levels", "retry_delay", "schedule"."""

from __future__ import annotations

import json

import pytest

from gimbalmq.core.delays import (
    DEFAULT_DELAY_LEVELS_MS,
    due_ms,
    exponential_delay_ms,
    parse_delay_levels,
    retry_delay_ms,
    retry_level,
    scheduled,
)
from gimbalmq.errors import ConfigurationError


def check_delay_levels(line):
    text = line["in"]["levels"]
    if line.get("error"):
        with pytest.raises(ConfigurationError):
            parse_delay_levels(text)
        return
    levels, out = parse_delay_levels(text), line["out"]
    assert {str(number): ms for number, ms in enumerate(levels, 1)} == out["delayMillis"]
    assert len(levels) == out["maxLevel"]
    for level, expected in out["deliverTimestampOf1700000000000"].items():
        assert due_ms(int(level), 1_700_000_000_000, levels) == expected
    if line["in"]["default"]:
        assert levels == DEFAULT_DELAY_LEVELS_MS


def check_retry_delay(line):
    given, out = line["in"], line["out"]
    times = given["reconsumeTimes"]
    if given.get("policy") == "EXPONENTIAL":
        assert exponential_delay_ms(times) == out
    elif given.get("policy") == "CUSTOMIZED":
        assert retry_delay_ms(times, DEFAULT_DELAY_LEVELS_MS) == out
    else:
        level = retry_level(times, given["delayLevel"])
        assert level == out["level"]
        assert min(level, len(DEFAULT_DELAY_LEVELS_MS)) == out["storedLevel"]
        assert retry_delay_ms(times, DEFAULT_DELAY_LEVELS_MS) == out["delayMillis"]


def check_schedule(line):
    given, out = line["in"], line["out"]
    topic, queue_id, properties = scheduled(
        given["topic"], given["queueId"], given["properties"], len(DEFAULT_DELAY_LEVELS_MS)
    )
    assert (topic, queue_id) == (out["topic"], out["queueId"])
    assert properties == out["properties"]


CHECKS = {
    "delay_levels": check_delay_levels,
    "retry_delay": check_retry_delay,
    "schedule": check_schedule,
}


@pytest.mark.parametrize("kind", CHECKS)
def test_every_line_of_a_kind_agrees_with_java(kind, vectors_dir):
    checked = 0
    with (vectors_dir / "wire.jsonl").open(encoding="utf-8") as lines:
        for text in lines:
            line = json.loads(text)
            if line["kind"] == kind:
                CHECKS[kind](line)
                checked += 1
    assert checked
