"""The options of pipelines: from `name=value` texts to a checked value, and back to help texts.

A pipeline's options are a frozen struct whose fields are written in camel case, as the options of
`format("rocketmq")` are.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from gimbalmq.client.access import AccessOptions, reach_options
from gimbalmq.errors import ConfigurationError
from gimbalmq.spark.option_names import lowered
from gimbalmq.spark.option_values import namespace_option, reach_option

__all__ = [
    "PipelineOptions",
    "client_options",
    "option_names",
    "parse_options",
    "parse_pairs",
    "source_options",
]


class PipelineOptions(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What every pipeline takes: where the cluster is, and how to reach it."""

    #: None: the variable NAMESRV_ADDR.
    nameserver: str | None = None
    access_key: str | None = None
    secret_key: str | None = None
    tls: bool | None = None
    tls_ca_file: str | None = None
    tls_cert_file: str | None = None
    tls_key_file: str | None = None
    #: Prefix of topics and groups that is added and taken off again.
    namespace: str | None = None

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """All options but the secret, which no text form of them has."""
        given = [(field, getattr(self, field)) for field in self.__struct_fields__]
        return [(name, "..." if value and name == "secret_key" else value) for name, value in given]

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self.__rich_repr__())
        return f"{type(self).__name__}({shown})"


_T = TypeVar("_T", bound=PipelineOptions)


def parse_pairs(pairs: Sequence[str]) -> dict[str, str]:
    """Texts of the form `name=value` by name.

    >>> parse_pairs(["topic=orders", "sql=select a = 1"])
    {'topic': 'orders', 'sql': 'select a = 1'}
    """
    found: dict[str, str] = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator or not name:
            raise ConfigurationError(f"--option {pair}: write it as name=value")
        if name in found:
            raise ConfigurationError(f"option '{name}' is given twice")
        found[name] = value
    return found


def parse_options(kind: type[_T], given: Mapping[str, str]) -> _T:
    """The options of a pipeline.

    Raises:
        ConfigurationError: an option is unknown, missing, or its text means nothing.
    """
    known = {field.encode_name.lower(): field for field in msgspec.structs.fields(kind)}
    values: dict[str, Any] = {}
    for name, text in given.items():
        field = known.get(name.lower())
        if field is None:
            close = difflib.get_close_matches(name.lower(), known, n=1)
            hint = f"did you mean '{known[close[0]].encode_name}'? " if close else ""
            raise ConfigurationError(
                f"unknown option '{name}': {hint}There are {', '.join(option_names(kind))}"
            )
        try:
            values[field.encode_name] = msgspec.convert(text, field.type, strict=False)
        except msgspec.ValidationError as error:
            raise ConfigurationError(f"option '{name}' is '{text}': {error}") from error
    missing = [
        field.encode_name
        for field in known.values()
        if field.required and field.encode_name not in values
    ]
    if missing:
        raise ConfigurationError(f"option '{missing[0]}' is missing: add --option {missing[0]}=...")
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        raise ConfigurationError(str(error)) from error


def option_names(kind: type[PipelineOptions]) -> list[str]:
    """The names of all options, those that must be given with a star."""
    return [
        field.encode_name + ("*" if field.required else "")
        for field in msgspec.structs.fields(kind)
    ]


def source_options(options: PipelineOptions, **others: object) -> dict[str, str]:
    """Options for `format("rocketmq")`; what is None is left out."""
    shared = msgspec.structs.fields(PipelineOptions)
    texts = {field.encode_name: getattr(options, field.name) for field in shared} | others
    return {name: _text(value) for name, value in texts.items() if value is not None}


def client_options(options: PipelineOptions) -> AccessOptions:
    """How clients reach the cluster, beside its name servers.

    Raises:
        ConfigurationError: keys, files or the namespace cannot be used.
    """
    given = lowered(source_options(options))
    return {**reach_options(reach_option(given)), "namespace": namespace_option(given).name}


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return value.isoformat() if isinstance(value, datetime) else str(value)
