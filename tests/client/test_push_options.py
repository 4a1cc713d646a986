"""Options of a push consumer that contradict each other, or what brokers and Java members do."""

import pytest

from gimbalmq import PushConsumer
from gimbalmq.errors import ConfigurationError


def made(**options):
    return PushConsumer("billing", nameserver="127.0.0.1:1", ordered=True, **options)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"lock_trust_s": 1.0}, "lock_trust_s .1. must be longer than lock_renew_s .1."),
        (
            {"lock_trust_s": 120.0, "lock_renew_s": 100.0, "take_over_grace_s": 130.0},
            "lock_trust_s .120. must be shorter than 60 s",
        ),
        ({"lock_trust_s": 60.0, "take_over_grace_s": 70.0}, "must be shorter than 60 s"),
        ({"take_over_grace_s": 3.0}, "take_over_grace_s .3. must be longer than lock_trust_s .3."),
        (
            {"take_over_foreign_grace_s": 1.0},
            "take_over_foreign_grace_s .1. must be longer than 30 s",
        ),
        ({"take_over_foreign_grace_s": 30.0}, "must be longer than 30 s"),
        (
            {
                "lock_trust_s": 40.0,
                "take_over_grace_s": 45.0,
                "take_over_foreign_grace_s": 35.0,
            },
            "take_over_foreign_grace_s .35. must be longer than 40 s",
        ),
        ({"take_over_foreign_grace_s": -5.0}, "take_over_foreign_grace_s is -5.0"),
        ({"take_over_foreign_grace_s": float("nan")}, "take_over_foreign_grace_s is nan"),
        ({"release_drain_s": -3.0}, "release_drain_s is -3.0: give seconds, 0 or more"),
        ({"release_drain_s": float("nan")}, "release_drain_s is nan"),
        ({"lock_trust_s": float("nan")}, "lock_trust_s is nan"),
        *(
            ({name: -1.0}, f"{name} is -1.0")
            for name in (
                "lock_renew_s",
                "lock_trust_s",
                "take_over_grace_s",
                "rebalance_interval_s",
                "pull_idle_limit_s",
                "persist_consumer_offset_interval_s",
                "poll_name_server_interval_s",
                "heartbeat_broker_interval_s",
                "suspend_current_queue_time_s",
                "weights_interval_s",
                "consume_timeout_s",
                "hung_listener_s",
                "rejoin_grace_s",
            )
        ),
    ],
    ids=str,
)
def test_times_that_are_unsafe_or_none_are_refused(options, complaint):
    with pytest.raises(ConfigurationError, match=complaint):
        made(**options)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"release_drain_s": 0.0},
        {"take_over_foreign_grace_s": None},
        {"take_over_foreign_grace_s": 31.0},
        {"lock_renew_s": 20.0, "lock_trust_s": 30.0, "take_over_grace_s": 35.0},
    ],
    ids=str,
)
def test_times_that_are_safe_are_accepted(options):
    settings = made(**options)._settings
    assert all(getattr(settings, name) == value for name, value in options.items())
