"""Compression of message bodies: zlib always, LZ4 frames and zstd with the optional extra.

Every expansion is bounded, so that a small body cannot fill the memory.
"""

from __future__ import annotations

import importlib
import zlib
from typing import Any, Final

from gimbalmq.errors import ConfigurationError, ProtocolError
from gimbalmq.wire.codes import CompressionType, SysFlag

__all__ = ["BODY_BYTES_MAX", "compress", "compression_of", "decompress"]

#: Sixteen times the largest body that a broker accepts by default.
BODY_BYTES_MAX: Final = 64 * 1024 * 1024

_COMPRESSED: Final = int(SysFlag.COMPRESSED)
_TYPE_MASK: Final = int(SysFlag.COMPRESSION_MASK)

#: Java's default level; higher ones cost time and gain little.
_ZLIB_LEVEL: Final = 5


def compression_of(sys_flag: int) -> CompressionType | None:
    """How a body is compressed according to its sysFlag; None = not at all.

    >>> compression_of(0x301), compression_of(0x300)
    (<CompressionType.ZLIB: 768>, None)
    """
    if not sys_flag & _COMPRESSED:
        return None
    bits = sys_flag & _TYPE_MASK
    try:
        return CompressionType(bits)
    except ValueError:
        raise ProtocolError(
            f"sysFlag {sys_flag:#x} names an unknown compression ({bits:#x}): "
            "the record is corrupt, or written by a newer release"
        ) from None


def compress(body: bytes, compression: CompressionType, *, level: int = _ZLIB_LEVEL) -> bytes:
    """Compress a body as Java producers do; `level` is used by zlib and zstd.

    >>> decompress(compress(b"x" * 5000, CompressionType.ZLIB), CompressionType.ZLIB) == b"x" * 5000
    True
    """
    match compression:
        case CompressionType.LZ4:
            packed: bytes = _lz4().compress(body)
        case CompressionType.ZSTD:
            packed = _zstd().compress(body, level)
        case _:
            packed = zlib.compress(body, level)
    return packed


def decompress(
    data: bytes | memoryview, compression: CompressionType, *, bytes_max: int = BODY_BYTES_MAX
) -> bytes:
    """Expand a body.

    Raises:
        ProtocolError: the data is corrupt, cut off, or larger than `bytes_max` when expanded.
        ConfigurationError: the extra that reads this compression is not installed.
    """
    errors: tuple[type[Exception], ...]
    match compression:
        case CompressionType.LZ4:
            reader: Any = _lz4().LZ4FrameDecompressor()
            errors = (RuntimeError, EOFError)
        case CompressionType.ZSTD:
            zstd = _zstd()
            reader = zstd.ZstdDecompressor()
            errors = (zstd.ZstdError, EOFError)
        case _:
            reader = zlib.decompressobj()
            errors = (zlib.error,)
    try:
        body: bytes = reader.decompress(data, bytes_max + 1)
    except errors as error:
        raise ProtocolError(f"{compression.name} body is corrupt: {error}") from error
    if len(body) > bytes_max:
        raise ProtocolError(
            f"{compression.name} body of {len(data)} bytes expands beyond {bytes_max} bytes: "
            "refused as a decompression bomb"
        )
    if not reader.eof:
        raise ProtocolError(f"{compression.name} body of {len(data)} bytes is cut off")
    return body


def _lz4() -> Any:
    try:
        return importlib.import_module("lz4.frame")
    except ImportError as error:
        raise _missing("LZ4") from error


def _zstd() -> Any:
    for name in ("compression.zstd", "backports.zstd"):
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    raise _missing("ZSTD")


def _missing(name: str) -> ConfigurationError:
    return ConfigurationError(
        f"a message body is {name}-compressed and the library for it is not installed: "
        'pip install "gimbalmq[compression]"'
    )
