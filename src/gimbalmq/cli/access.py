"""How commands reach a cluster that wants keys or TLS: options that every such command takes.

They are kept with the running command instead of being passed to it, so that a command only says
`Admin(nameserver, **access_options())`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from gimbalmq.client.access import AccessOptions
from gimbalmq.transport.reach import TlsFiles

__all__ = ["access_option", "access_options"]

F = TypeVar("F", bound=Callable[..., Any])

_KEY: Final = "gimbalmq.access"
_FILE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)


def access_option(command: F) -> F:
    """Add `--access-key`, `--secret-key`, `--tls`, `--tls-ca-file` and so on."""
    for name, settings in reversed(_OPTIONS.items()):
        variable = name.removeprefix("--").replace("-", "_").upper()
        help_text = f"{settings['help']} [variable: ROCKETMQ_{variable}]"
        command = click.option(
            name,
            expose_value=False,
            callback=_keep,
            **{**settings, "help": help_text, "envvar": f"ROCKETMQ_{variable}"},
        )(command)
    return command


_OPTIONS: Final[dict[str, dict[str, Any]]] = {
    "--access-key": {"help": "Whose requests these are, where access control is on."},
    "--secret-key": {"help": "Signs the requests; better given by the variable."},
    "--tls": {"is_flag": True, "help": "Speak TLS; trusts the authorities of this system."},
    "--tls-ca-file": {"type": _FILE, "help": "Authority to trust instead (PEM); switches TLS on."},
    "--tls-cert-file": {"type": _FILE, "help": "Certificate to show (PEM); switches TLS on."},
    "--tls-key-file": {"type": _FILE, "help": "Key of the certificate, where it is not in it."},
    "--namespace": {"help": "Prefix of topics and groups that is added and taken off again."},
}


def _keep(context: click.Context, parameter: click.Parameter, value: object) -> None:
    if value and parameter.name is not None:
        context.meta.setdefault(_KEY, {})[parameter.name] = value


def access_options() -> AccessOptions:
    """What the running command was told, for every client that it makes."""
    given: dict[str, Any] = click.get_current_context().meta.get(_KEY, {})
    options: AccessOptions = {}
    if "access_key" in given:
        options["access_key"] = given["access_key"]
    if "secret_key" in given:
        options["secret_key"] = given["secret_key"]
    if "namespace" in given:
        options["namespace"] = given["namespace"]
    files: dict[str, Any] = {
        name: str(given[f"tls_{name}"])
        for name in ("ca_file", "cert_file", "key_file")
        if f"tls_{name}" in given
    }
    if files or "tls" in given:
        options["tls"] = TlsFiles(**files)
    return options
