from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gimbalmq.broker.sql92 import compile_selection
from gimbalmq.errors import ConfigurationError

WORKS = [
    ("a = 'x'", {"a": "x"}, True),
    ("a = 'x'", {"a": "y"}, False),
    ("a = 'x'", {}, False),
    ("a <> 'x'", {"a": "y"}, True),
    ("a <> 'x'", {}, False),
    ("a > 10", {"a": "11"}, True),
    ("a > 10", {"a": "10"}, False),
    ("a >= 10 AND a <= 12", {"a": "12"}, True),
    ("a > 10 OR b = 'y'", {"b": "y"}, True),
    ("NOT a > 10", {"a": "9"}, True),
    ("NOT a > 10", {}, False),
    ("a BETWEEN 1 AND 3", {"a": "3"}, True),
    ("a NOT BETWEEN 1 AND 3", {"a": "4"}, True),
    ("a NOT BETWEEN 1 AND 3", {"a": "2"}, False),
    ("a IN ('x', 'y')", {"a": "y"}, True),
    ("a NOT IN ('x', 'y')", {"a": "z"}, True),
    ("a NOT IN ('x', 'y')", {}, False),
    ("a IS NULL", {}, True),
    ("a IS NOT NULL", {"a": "1"}, True),
    ("a = TRUE", {"a": "true"}, True),
    ("a = FALSE", {"a": "no"}, True),
    ("a = 1.5", {"a": "1.5"}, True),
    ("a > -2", {"a": "-1"}, True),
    ("a = 3.0", {"a": "3"}, True),
    ("a = 'it''s'", {"a": "it's"}, True),
    ("a CONTAINS 'ell'", {"a": "hello"}, True),
    ("a STARTSWITH 'he'", {"a": "hello"}, True),
    ("a ENDSWITH 'lo'", {"a": "hello"}, True),
    ("a NOT CONTAINS 'x'", {"a": "hello"}, True),
    ("(a > 10 AND a < 100) OR (b IS NOT NULL AND b=TRUE)", {"a": "5", "b": "TRUE"}, True),
    ("a > 10 and b is null", {"a": "11"}, True),
    ("a", {"a": "true"}, False),
    ("TRUE", {}, True),
    ("a > 1 -- why not", {"a": "2"}, True),
]


@pytest.mark.rule("W3.3", "W5.2")
@pytest.mark.parametrize(("expression", "properties", "wanted"), WORKS)
def test_an_expression_selects_by_properties(expression, properties, wanted):
    assert compile_selection(expression).matches(properties) is wanted


def test_a_property_that_should_be_a_number_and_is_none_selects_nothing():
    selection = compile_selection("a > 3 OR b = 'x'")
    assert not selection.matches({"a": "many", "b": "x"})
    assert selection.matches({"b": "x"})


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "  ",
        "a >",
        "a > 'x'",
        "a BETWEEN 'x' AND 'y'",
        "a BETWEEN 3 AND 1",
        "a IN (1, 2)",
        "a IN ()",
        "(a > 1",
        "a > 1)",
        "a = 'open",
        "a LIKE 'x%'",
        "a + 1 > 2",
        "1",
        "'text'",
        "a IS 3",
        "99999999999999999999 = a",
        "a ; b",
        "(" * 200 + "a = 1" + ")" * 200,
        "a = '" + "x" * 40_000 + "'",
    ],
)
def test_what_is_no_expression_is_refused_with_its_place(expression):
    with pytest.raises(ConfigurationError, match="SQL expression"):
        compile_selection(expression)


NAMES = st.sampled_from(["a", "b", "c"])
NUMBERS = st.integers(-20, 20)


def conditions():
    simple = st.one_of(
        st.tuples(NAMES, st.sampled_from([">", ">=", "<", "<=", "=", "<>"]), NUMBERS),
        st.tuples(NAMES, st.just("IS NULL"), st.just(0)),
    )
    return st.recursive(
        simple,
        lambda inner: st.one_of(
            st.tuples(st.sampled_from(["AND", "OR"]), inner, inner),
            st.tuples(st.just("NOT"), inner, st.none()),
        ),
        max_leaves=12,
    )


def text_of(condition):
    first, second, third = condition
    if first in {"AND", "OR"}:
        return f"({text_of(second)} {first} {text_of(third)})"
    if first == "NOT":
        return f"NOT ({text_of(second)})"
    return f"{first} IS NULL" if second == "IS NULL" else f"{first} {second} {third}"


def value_of(condition, numbers):
    """The three-valued result by the textbook: None is unknown."""
    first, second, third = condition
    if first == "NOT":
        value = value_of(second, numbers)
        return None if value is None else not value
    if first in {"AND", "OR"}:
        values = {value_of(second, numbers), value_of(third, numbers)}
        strong = first == "OR"
        if strong in values:
            return strong
        return None if None in values else not strong
    number = numbers.get(first)
    if second == "IS NULL":
        return number is None
    if number is None:
        return None
    return {
        ">": number > third,
        ">=": number >= third,
        "<": number < third,
        "<=": number <= third,
        "=": number == third,
        "<>": number != third,
    }[second]


@pytest.mark.rule("W5.2")
@given(conditions(), st.dictionaries(NAMES, NUMBERS))
def test_every_expression_means_what_the_textbook_says(condition, numbers):
    properties = {name: str(number) for name, number in numbers.items()}
    selection = compile_selection(text_of(condition))
    assert selection.matches(properties) is (value_of(condition, numbers) is True)


@given(st.text(alphabet="abAND ORNTIS()'=<>-+.,0123456789", max_size=60))
def test_no_text_does_more_than_be_refused(text):
    try:
        selection = compile_selection(text)
    except ConfigurationError:
        return
    assert selection.matches({"a": "1", "b": "x"}) in {True, False}
