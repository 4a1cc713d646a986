from __future__ import annotations

import pytest

from gimbalmq.errors import ConfigurationError
from gimbalmq.wire.subscription import ALL_TAGS, SQL92, parse_tags, sql_subscription


@pytest.mark.rule("W3.3a")
@pytest.mark.parametrize("expression", [None, "", "*"])
def test_no_expression_means_all_tags(expression):
    subscription = parse_tags("t", expression, 5)
    assert subscription.expression == ALL_TAGS
    assert subscription.version_ms == 5
    assert subscription.matches("x")
    assert subscription.matches(None)


@pytest.mark.rule("W3.3")
def test_a_consumer_looks_at_the_tag_itself_because_hashes_collide():
    subscription = parse_tags("t", "Aa", 0)
    assert subscription.codes == parse_tags("t", "BB", 0).codes
    assert subscription.matches("Aa")
    assert not subscription.matches("BB")
    assert not subscription.matches(None)


@pytest.mark.rule("W3.3c")
@pytest.mark.parametrize("expression", ["||", "||||"])
def test_an_expression_of_separators_only_is_refused(expression):
    with pytest.raises(ConfigurationError, match="names no tag"):
        parse_tags("t", expression, 0)


def test_sql_is_left_to_the_broker():
    subscription = sql_subscription("t", "a > 5", 7)
    assert subscription.expression_type == SQL92
    assert subscription.is_sql
    assert not parse_tags("t", "a", 0).is_sql
    assert subscription.matches("anything")
    with pytest.raises(ConfigurationError, match="empty"):
        sql_subscription("t", "  ", 0)
