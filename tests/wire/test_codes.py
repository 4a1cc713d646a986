from __future__ import annotations

import pytest

from gimbalmq.errors import ConfigurationError
from gimbalmq.wire.codes import (
    CLIENT_VERSION,
    RequestCode,
    ResponseCode,
    perm_text,
    response_name,
    version_name,
    version_ordinal,
)


@pytest.mark.rule("W1.6a")
@pytest.mark.parametrize(
    ("name", "ordinal"),
    [
        ("4.0.0", 213),
        ("4.1.0-SNAPSHOT", 232),
        ("4.9.3", 399),
        ("4.9.4", 401),
        ("4.9.5", 403),
        ("5.0.0", 413),
        ("5.3.3", CLIENT_VERSION),
        ("5.5.0", 513),
    ],
)
def test_releases_have_the_numbers_that_they_send(name, ordinal):
    assert version_ordinal(name) == ordinal
    assert version_name(ordinal) == name


def test_a_number_outside_the_list_has_a_name_too():
    assert version_name(612) == version_name(99999) == "higher"
    assert version_name(-1) == "unknown"


def test_an_unknown_release_has_no_number():
    with pytest.raises(ConfigurationError, match="no RocketMQ release"):
        version_ordinal("6.0")


@pytest.mark.rule("W2.1")
def test_a_response_code_is_named_even_if_unknown():
    assert response_name(ResponseCode.PULL_NOT_FOUND) == "PULL_NOT_FOUND"
    assert response_name(4711) == "4711"


@pytest.mark.rule("W2.2")
def test_codes_of_both_releases_are_there():
    assert RequestCode.POP_MESSAGE == 200050
    assert RequestCode.UPDATE_AND_CREATE_ACL_CONFIG == 50


def test_a_permission_is_shown_as_tools_show_it():
    assert [perm_text(perm) for perm in (0, 2, 4, 6, 7)] == ["---", "-W-", "R--", "RW-", "RWX"]
