"""Options of the wrong kind, and misspelt ones, are named before anything is made of them."""

import numpy as np
import pytest

from gimbalmq import (
    Admin,
    FaultTolerance,
    LitePullConsumer,
    Producer,
    PullConsumer,
    PushConsumer,
    aio,
)
from gimbalmq.errors import ConfigurationError

NAMED = [Producer, PushConsumer, LitePullConsumer, PullConsumer]
NAMED += [aio.Producer, aio.PushConsumer, aio.LitePullConsumer, aio.PullConsumer]


@pytest.mark.parametrize(
    ("kind", "option", "value", "words"),
    [
        (Producer, "timeout_s", "3", "timeout_s is '3': give a number"),
        (Producer, "timeout_s", float("nan"), "timeout_s is nan: give a number"),
        (Producer, "retries", 1.5, "retries is 1.5: give a whole number"),
        (Producer, "retries", True, "retries is True: give a whole number"),
        (
            Producer,
            "fault_tolerance",
            "5.x",
            "fault_tolerance is '5.x': give True or False or a FaultTolerance",
        ),
        (Producer, "check", 3, "check is 3: give a function"),
        (Producer, "client_id", 7, "client_id is 7: give text or None"),
        (PushConsumer, "ordered", "no", "ordered is 'no': give True or False"),
        (PushConsumer, "batch_size", "32", "batch_size is '32': give a whole number"),
        (PushConsumer, "allocation", None, "allocation is None: give text or a Strategy"),
        (PushConsumer, "lock_renew_s", "20", "lock_renew_s is '20': give a number"),
        (LitePullConsumer, "auto_commit", 0, "auto_commit is 0: give True or False"),
        (PullConsumer, "pull_thread_nums", None, "pull_thread_nums is None: give a whole number"),
        (aio.PushConsumer, "workers", "all", "workers is 'all': give a whole number"),
    ],
)
def test_an_option_of_the_wrong_kind_is_named_with_what_to_give(kind, option, value, words):
    with pytest.raises(ConfigurationError, match=f"^{words}"):
        kind("billing", nameserver="n:1", **{option: value})


def test_admin_says_it_too():
    with pytest.raises(ConfigurationError, match=r"^timeout_s is '5': give a number"):
        Admin("n:1", timeout_s="5")


@pytest.mark.parametrize(
    "options",
    [
        {"timeout_s": 3, "retries": 0, "fault_tolerance": True},
        {"timeout_s": np.float64(3.0), "retries": np.int64(1)},
        {"fault_tolerance": FaultTolerance(), "client_id": "till", "check": print},
    ],
)
def test_whole_numbers_are_times_and_numbers_of_others_are_numbers(options):
    Producer("shop", nameserver="n:1", **options)


@pytest.mark.parametrize(
    ("kind", "option", "meant"),
    [
        (Producer, "timeout", "timeout_s"),
        (PushConsumer, "batchsize", "batch_size"),
        (LitePullConsumer, "auto_comit", "auto_commit"),
        (PullConsumer, "name_server", "nameserver"),
        (aio.PushConsumer, "worker", "workers"),
    ],
)
def test_a_misspelt_option_is_guessed_among_all_of_its_class(kind, option, meant):
    with pytest.raises(
        ConfigurationError, match=f"there is no option '{option}': did you mean {meant}"
    ):
        kind("billing", nameserver="n:1", **{option: 1})


def test_where_nothing_is_near_all_options_are_listed():
    with pytest.raises(ConfigurationError, match=r"known are .*ordered, .*workers"):
        PushConsumer("billing", nameserver="n:1", thread_count=8)


@pytest.mark.parametrize("kind", NAMED)
@pytest.mark.parametrize("group", [None, 7, b"billing", ""])
def test_what_is_no_name_is_refused_as_a_group(kind, group):
    with pytest.raises(ConfigurationError, match=f"^{group!r} is no group name: use 1 to 120"):
        kind(group, nameserver="n:1")


@pytest.mark.parametrize("kind", [*NAMED, Admin, aio.Admin])
@pytest.mark.parametrize("nameserver", [["n:1", "m:1"], 9876])
def test_name_servers_are_text(kind, nameserver):
    with pytest.raises(ConfigurationError, match=r"give text such as .* several separated by ';'"):
        kind(*(() if kind in {Admin, aio.Admin} else ("billing",)), nameserver=nameserver)
