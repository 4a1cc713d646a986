"""SQL92 selection of messages by their properties, as RocketMQ's brokers understand it.

    expression := and { OR and }           and        := not { AND not }
    not        := NOT not | comparison     comparison := operand { predicate }
    predicate  := (= | <>) operand | (> | >= | < | <=) operand
                | [NOT] BETWEEN operand AND operand | [NOT] IN ('a', 'b', ...)
                | [NOT] (CONTAINS | STARTSWITH | ENDSWITH) 'text' | IS [NOT] NULL
    operand    := property | number | -number | 'text' | TRUE | FALSE | NULL | ( expression )

Properties are text; compared with a number they are read as one. Logic has three values: a
comparison with an absent property is unknown, and only what is true is selected. A property that
should be a number and is none makes the whole message unselected, as in Java.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import msgspec

from gimbalmq.broker.sql92_values import (
    Evaluate,
    Node,
    Properties,
    Value,
    both,
    compare,
    constant,
    either,
    is_null,
    is_number,
    negated,
    one_of,
    property_value,
    text_test,
)
from gimbalmq.errors import ConfigurationError

__all__ = ["EXPRESSION_CHARS_MAX", "Selection", "compile_selection"]

EXPRESSION_CHARS_MAX: Final = 32_768
_DEPTH_MAX: Final = 100
_LONG_MAX: Final = (1 << 63) - 1

_token: Final = re.compile(
    r"""\s*(?:
    (?P<comment>--[^\n]*|/\*.*?\*/)
    |(?P<float>\d+\.\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+)
    |(?P<integer>\d+)[lL]?
    |(?P<text>'(?:[^']|'')*')
    |(?P<name>[A-Za-z_$][A-Za-z0-9_$]*)
    |(?P<mark><>|<=|>=|[=<>(),+-])
    )""",
    re.VERBOSE | re.DOTALL,
).match

_KEYWORDS: Final = frozenset(
    {
        *("AND", "OR", "NOT", "BETWEEN", "IN", "IS", "NULL", "TRUE", "FALSE"),
        *("CONTAINS", "STARTSWITH", "ENDSWITH"),
    }
)
_ORDER_MARKS: Final = {">", ">=", "<", "<="}
_TEXT_TESTS: Final[dict[str, Callable[[str, str], bool]]] = {
    "CONTAINS": lambda text, part: part in text,
    "STARTSWITH": str.startswith,
    "ENDSWITH": str.endswith,
}


class _Token(msgspec.Struct, frozen=True):
    kind: str
    value: Value
    at: int


class Selection:
    """A compiled expression.

    >>> wanted = compile_selection("a > 10 AND (b IS NULL OR b IN ('x', 'y'))")
    >>> wanted.matches({"a": "11"}), wanted.matches({"a": "11", "b": "z"}), wanted.matches({})
    (True, False, False)
    """

    __slots__ = ("_evaluate", "expression")

    def __init__(self, expression: str, evaluate: Evaluate) -> None:
        self.expression = expression
        self._evaluate = evaluate

    def matches(self, properties: Properties) -> bool:
        """Whether a message with these properties is selected."""
        try:
            return self._evaluate(properties) is True
        except ValueError:
            # Text where a number is needed: Java's evaluation fails, and so selects nothing.
            return False


def compile_selection(expression: str) -> Selection:
    """Read an expression.

    Raises:
        ConfigurationError: it is no SQL92 expression; the text says where it goes wrong.
    """
    if len(expression) > EXPRESSION_CHARS_MAX:
        raise ConfigurationError(
            f"SQL expression has {len(expression)} characters: at most {EXPRESSION_CHARS_MAX}"
        )
    return Selection(expression, _Parser(expression).whole())


def _tokens(expression: str) -> list[_Token]:
    found: list[_Token] = []
    position = 0
    end = len(expression.rstrip())
    while position < end:
        match = _token(expression, position)
        if match is None:
            raise _fault(expression, position, "no word, number or sign of SQL92")
        kind = str(match.lastgroup)
        text = match.group(kind)
        position = match.end()
        if kind != "comment":
            found.append(_read(kind, text, match.start(kind), expression))
    return found


def _read(kind: str, text: str, at: int, expression: str) -> _Token:
    match kind:
        case "float":
            return _Token("constant", float(text), at)
        case "integer":
            if len(text) > 19 or int(text) > _LONG_MAX:
                raise _fault(expression, at, "the number does not fit 64 bits")
            return _Token("constant", int(text), at)
        case "text":
            return _Token("constant", text[1:-1].replace("''", "'"), at)
        case "name" if text.upper() in _KEYWORDS:
            return _Token("keyword", text.upper(), at)
        case _:
            return _Token(kind, text, at)


def _fault(expression: str, at: int, what: str) -> ConfigurationError:
    excerpt = expression[at : at + 40]
    return ConfigurationError(f"SQL expression at character {at}: {what}; there is '{excerpt}'")


class _Parser:
    """Recursive descent; each method reads one rule of the grammar above."""

    def __init__(self, expression: str) -> None:
        self._expression = expression
        self._found = _tokens(expression)
        self._at = 0
        self._depth = 0

    def whole(self) -> Evaluate:
        if not self._found:
            raise _fault(self._expression, 0, "it is empty")
        node = self._condition(self._disjunction())
        if self._at < len(self._found):
            raise self._wrong("the expression should end here")
        return node.evaluate

    def _disjunction(self) -> Node:
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise self._wrong(f"it is nested more than {_DEPTH_MAX} deep")
        node = self._conjunction()
        while self._take("OR"):
            node = either(self._condition(node), self._condition(self._conjunction()))
        self._depth -= 1
        return node

    def _conjunction(self) -> Node:
        node = self._negation()
        while self._take("AND"):
            node = both(self._condition(node), self._condition(self._negation()))
        return node

    def _negation(self) -> Node:
        count = 0
        while self._take("NOT"):
            count += 1
        node = self._comparison()
        if count:
            node = self._condition(node)
        return negated(node) if count % 2 else node

    def _comparison(self) -> Node:
        node = self._operand()
        while (following := self._predicate(node)) is not None:
            node = following
        return node

    def _predicate(self, left: Node) -> Node | None:
        mark = self._peek()
        if mark in _ORDER_MARKS:
            self._at += 1
            return compare(str(mark), self._ordered(left), self._ordered(self._operand()))
        if mark in {"=", "<>"}:
            self._at += 1
            return compare(str(mark), left, self._operand())
        if mark == "IS":
            self._at += 1
            inverse = self._take("NOT")
            self._need("NULL")
            return is_null(left, inverse=inverse)
        inverse = mark == "NOT"
        word = self._peek(1) if inverse else mark
        if word not in {"BETWEEN", "IN", *_TEXT_TESTS}:
            return None
        self._at += 2 if inverse else 1
        node = self._range_or_text(str(word), left)
        return negated(node) if inverse else node

    def _range_or_text(self, word: str, left: Node) -> Node:
        if word == "BETWEEN":
            low = self._ordered(self._operand())
            self._need("AND")
            high = self._ordered(self._operand())
            if is_number(low.constant) and is_number(high.constant):
                self._check_range(low.constant, high.constant)
            value = self._ordered(left)
            return both(compare(">=", value, low), compare("<=", value, high))
        if left.kind != "property":
            raise self._wrong(f"a property must stand before {word}")
        if word == "IN":
            return one_of(left, self._texts())
        return text_test(left, _TEXT_TESTS[word], self._text())

    def _check_range(self, low: Value, high: Value) -> None:
        assert isinstance(low, int | float)
        assert isinstance(high, int | float)
        if low > high:
            raise self._wrong(f"BETWEEN {low} AND {high} selects nothing")

    def _texts(self) -> frozenset[str]:
        self._need("(")
        texts = [self._text()]
        while self._take(","):
            texts.append(self._text())
        self._need(")")
        return frozenset(texts)

    def _text(self) -> str:
        token = self._next()
        if token.kind != "constant" or not isinstance(token.value, str):
            raise self._wrong("text in single quotes must stand here", back=1)
        return token.value

    def _operand(self) -> Node:
        if self._take("("):
            node = self._disjunction()
            self._need(")")
            return node
        sign = 1
        while self._peek() in {"+", "-"}:
            sign = -sign if self._next().value == "-" else sign
        token = self._next()
        value = token.value
        if token.kind == "keyword" and value in {"TRUE", "FALSE", "NULL"}:
            return constant({"TRUE": True, "FALSE": False}.get(str(value)))
        if token.kind == "constant":
            if sign < 0:
                if isinstance(value, str) or value is None:
                    raise self._wrong("only a number has a sign", back=1)
                value = -value
            return constant(value)
        if token.kind == "name" and sign > 0:
            return property_value(str(value))
        raise self._wrong("a property, a number or a text must stand here", back=1)

    def _ordered(self, node: Node) -> Node:
        """Only properties and numbers have an order."""
        if node.kind == "property" or (node.kind == "constant" and is_number(node.constant)):
            return node
        raise self._wrong("only numbers and properties can be compared by order", back=1)

    def _condition(self, node: Node) -> Node:
        """What can be true or false; a property alone is text and so never true."""
        if node.kind == "condition" or isinstance(node.constant, bool):
            return node
        if node.kind == "property":
            return Node(
                lambda properties: None if node.evaluate(properties) is None else False,
                "condition",
            )
        raise self._wrong("this gives no truth value", back=1)

    def _peek(self, ahead: int = 0) -> Value:
        if self._at + ahead >= len(self._found):
            return None
        token = self._found[self._at + ahead]
        return token.value if token.kind in {"keyword", "mark"} else None

    def _take(self, wanted: str) -> bool:
        if self._peek() != wanted:
            return False
        self._at += 1
        return True

    def _need(self, wanted: str) -> None:
        if not self._take(wanted):
            raise self._wrong(f"'{wanted}' must stand here")

    def _next(self) -> _Token:
        if self._at >= len(self._found):
            raise self._wrong("it ends too early")
        self._at += 1
        return self._found[self._at - 1]

    def _wrong(self, what: str, back: int = 0) -> ConfigurationError:
        index = self._at - back
        at = self._found[index].at if 0 <= index < len(self._found) else len(self._expression)
        return _fault(self._expression, at, what)
