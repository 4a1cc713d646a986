from __future__ import annotations

import pytest

from gimbalmq.errors import ConfigurationError
from gimbalmq.spark.pipelines import PIPELINES, find_pipeline
from gimbalmq.spark.pipelines.archive import Options as ArchiveOptions
from gimbalmq.spark.pipelines.replay import Options as ReplayOptions
from gimbalmq.spark.pipelines.settings import parse_options, parse_pairs, source_options


def test_texts_become_values_of_their_type():
    options = parse_options(ReplayOptions, {"topic": "t", "Rate": "20", "dryRun": "true"})
    assert (options.topic, options.rate, options.dry_run) == ("t", 20, True)


@pytest.mark.parametrize(
    ("kind", "given", "part"),
    [
        (ArchiveOptions, {"topic": "t"}, "option 'path' is missing: add --option path=..."),
        (ArchiveOptions, {"path": "p", "topics": "t"}, "did you mean 'topic'?"),
        (ReplayOptions, {"rate": "many"}, "option 'rate' is 'many'"),
    ],
)
def test_a_wrong_option_is_named(kind, given, part):
    with pytest.raises(ConfigurationError) as caught:
        parse_options(kind, given)
    assert part in str(caught.value)


@pytest.mark.parametrize(
    ("pairs", "part"), [(["topic"], "write it as name=value"), (["a=1", "a=2"], "given twice")]
)
def test_pairs_that_are_none_are_refused(pairs, part):
    with pytest.raises(ConfigurationError, match=part):
        parse_pairs(pairs)


def test_what_is_not_given_does_not_reach_the_source():
    options = parse_options(ReplayOptions, {"nameserver": "127.0.0.1:9876"})
    assert source_options(options, topic="t", rate=None, flag=True) == {
        "nameserver": "127.0.0.1:9876",
        "topic": "t",
        "flag": "true",
    }


def test_every_pipeline_can_be_loaded():
    for info in PIPELINES.values():
        module = info.load()
        assert callable(module.run)
        assert module.Options


def test_an_unknown_pipeline_is_refused_with_a_hint():
    with pytest.raises(ConfigurationError, match="did you mean 'archive'"):
        find_pipeline("archives")
