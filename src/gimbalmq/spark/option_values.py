"""What the texts of single options mean that reads, streams and writes share.

Every error names the option as the documentation writes it and says what to write instead. All
functions look into `lowered` options (`option_names`).
"""

from __future__ import annotations

from collections.abc import Mapping

from gimbalmq.errors import ConfigurationError
from gimbalmq.transport.address import parse_nameservers
from gimbalmq.transport.nameservers import instance_namespace
from gimbalmq.transport.reach import Reach, TlsFiles, reach_of
from gimbalmq.wire.names import Namespace, is_topic

__all__ = [
    "count_option",
    "flag_option",
    "nameservers_option",
    "namespace_option",
    "reach_option",
]


def reach_option(given: Mapping[str, str]) -> Reach:
    """Read the options for keys and TLS."""
    ca_file, cert_file, key_file = (
        given.get(name) for name in ("tlscafile", "tlscertfile", "tlskeyfile")
    )
    for one, other in (("accessKey", "secretKey"), ("secretKey", "accessKey")):
        if given.get(one.lower()) and not given.get(other.lower()):
            raise ConfigurationError(
                f"option '{one}' is given without '{other}': give both, or neither for a cluster "
                "without access control"
            )
    any_file = any((ca_file, cert_file, key_file))
    tls = flag_option(given, "tls", default=any_file)
    if any_file and not tls:
        raise ConfigurationError(
            "option 'tls' is false, but certificate files are given: leave one of them out"
        )
    try:
        files = TlsFiles(ca_file=ca_file, cert_file=cert_file, key_file=key_file)
        return reach_of(
            access_key=given.get("accesskey"),
            secret_key=given.get("secretkey"),
            tls=files if tls else False,
        )
    except ConfigurationError as error:
        raise ConfigurationError(
            f"options 'accessKey', 'secretKey' and 'tls...': {error}"
        ) from error


def namespace_option(given: Mapping[str, str]) -> Namespace:
    """Read the option for the namespace, which an instance's endpoint may stand for, as well."""
    name = given.get("namespace")
    if name is None:
        return Namespace(instance_namespace(given.get("nameserver")))
    if not is_topic(name) or "%" in name:
        raise ConfigurationError(
            f"option 'namespace' is '{name}': use the characters a-z A-Z 0-9 _ - |, or leave it out"
        )
    return Namespace(name)


def nameservers_option(
    given: Mapping[str, str], environment: Mapping[str, str] | None
) -> tuple[str, ...]:
    """Read the option for the name servers; `environment` replaces that of the process."""
    text = given.get("nameserver")
    if text and "," in text:
        raise ConfigurationError(
            f"option 'nameserver' is '{text}': separate several by ';', not by a comma"
        )
    try:
        return parse_nameservers(text, environment)
    except ConfigurationError as error:
        if text:
            raise ConfigurationError(f"option 'nameserver': {error}") from error
        raise ConfigurationError(
            "option 'nameserver' is missing: write host:9876 (several are separated by ';'), or "
            "set the environment variable NAMESRV_ADDR before the Spark session starts"
        ) from error


def flag_option(given: Mapping[str, str], option: str, *, default: bool) -> bool:
    """The value of an option that is true or false, out of `lowered` ones."""
    text = given.get(option.lower())
    if text is None:
        return default
    if text.lower() not in {"true", "false"}:
        raise ConfigurationError(f"option '{option}' is '{text}': write true or false")
    return text.lower() == "true"


def count_option(given: Mapping[str, str], option: str) -> int | None:
    """The value of an option that is a number from 1 on, out of `lowered` ones."""
    text = given.get(option.lower())
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and int(text)):
        raise ConfigurationError(f"option '{option}' is '{text}': write a whole number from 1 on")
    return int(text)
