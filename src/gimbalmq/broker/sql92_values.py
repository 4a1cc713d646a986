"""The parts of an SQL92 expression: values, comparisons and logic with three values.

Each part is a function of a message's properties. None is the unknown: an absent property, and
whatever is compared with one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

__all__ = [
    "Evaluate",
    "Node",
    "Properties",
    "Value",
    "both",
    "compare",
    "constant",
    "either",
    "is_null",
    "is_number",
    "negated",
    "one_of",
    "property_value",
    "text_test",
]

Value = str | bool | int | float | None
Properties = Mapping[str, str]
Evaluate = Callable[[Properties], Value]


class Node(msgspec.Struct, frozen=True):
    """A part of the expression: how it is evaluated, and what is known before any message is."""

    evaluate: Evaluate
    #: property, constant or condition
    kind: str
    constant: Value = None


def is_number(value: Value) -> bool:
    """Whether a value has an order."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def constant(value: Value) -> Node:
    """A value that does not depend on the message."""
    return Node(lambda _: value, "constant", value)


def property_value(name: str) -> Node:
    """A property of the message; None when it is absent."""
    return Node(lambda properties: properties.get(name), "property")


def negated(node: Node) -> Node:
    """The opposite; the unknown stays unknown."""

    def evaluate(properties: Properties) -> Value:
        value = node.evaluate(properties)
        return None if value is None else not value

    return Node(evaluate, "condition")


def both(left: Node, right: Node) -> Node:
    """True when both are, false as soon as one is."""

    def evaluate(properties: Properties) -> Value:
        first = left.evaluate(properties)
        if first is False:
            return False
        second = right.evaluate(properties)
        if second is False:
            return False
        return None if first is None or second is None else True

    return Node(evaluate, "condition")


def either(left: Node, right: Node) -> Node:
    """True as soon as one is, false when both are."""

    def evaluate(properties: Properties) -> Value:
        first = left.evaluate(properties)
        if first is True:
            return True
        second = right.evaluate(properties)
        if second is True:
            return True
        return None if first is None or second is None else False

    return Node(evaluate, "condition")


def is_null(node: Node, *, inverse: bool) -> Node:
    """Whether there is no value, or (inverse) whether there is one."""
    return Node(lambda properties: (node.evaluate(properties) is None) is not inverse, "condition")


def one_of(node: Node, texts: frozenset[str]) -> Node:
    """Whether a text is in a list."""

    def evaluate(properties: Properties) -> Value:
        value = node.evaluate(properties)
        return None if value is None else value in texts

    return Node(evaluate, "condition")


def text_test(node: Node, test: Callable[[str, str], bool], part: str) -> Node:
    """Whether a text has a part, where the test looks for it."""

    def evaluate(properties: Properties) -> Value:
        value = node.evaluate(properties)
        return None if not isinstance(value, str) or not part else test(value, part)

    return Node(evaluate, "condition")


def compare(mark: str, left: Node, right: Node) -> Node:
    """A comparison; with nothing on one side it is unknown."""

    def evaluate(properties: Properties) -> Value:
        first, second = left.evaluate(properties), right.evaluate(properties)
        if first is None or second is None:
            return None
        if type(first) is not type(second):
            first, second = _alike(first, second)
            if type(first) is not type(second):
                return False
        return _holds(mark, first, second)

    return Node(evaluate, "condition")


def _holds(mark: str, first: Value, second: Value) -> bool:
    match mark:
        case "=":
            return first == second
        case "<>":
            return first != second
    assert first is not None
    assert second is not None
    match mark:
        case ">":
            return first > second  # type: ignore[operator]  # both have one type by now
        case ">=":
            return first >= second  # type: ignore[operator]
        case "<":
            return first < second  # type: ignore[operator]
        case _:
            return first <= second  # type: ignore[operator]


def _alike(first: Value, second: Value) -> tuple[Value, Value]:
    """Both values in one type: text becomes what the other is; ValueError when it cannot."""
    if isinstance(first, str):
        return _converted(first, second), second
    if isinstance(second, str):
        return first, _converted(second, first)
    if isinstance(first, float) or isinstance(second, float):
        both = (first, second)
        if not any(isinstance(one, bool) for one in both):
            return float(first or 0), float(second or 0)
    return first, second


def _converted(text: str, like: Value) -> Value:
    if isinstance(like, bool):
        return text.lower() == "true"
    if "_" in text:
        raise ValueError(text)  # Python reads 1_000 as a number, Java does not
    return float(text) if isinstance(like, float) else int(text)
