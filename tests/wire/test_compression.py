from __future__ import annotations

import builtins
import importlib
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gimbalmq.errors import ConfigurationError, ProtocolError
from gimbalmq.wire.codes import CompressionType
from gimbalmq.wire.compression import compress, compression_of, decompress

ALL = list(CompressionType)


@pytest.mark.rule("W4.3b")
@given(st.binary(max_size=300), st.sampled_from(ALL))
def test_a_body_survives(body, compression):
    assert decompress(compress(body, compression), compression) == body


@pytest.mark.rule("W4.3b")
def test_the_flag_says_how_a_body_is_compressed():
    assert compression_of(0x300) is None
    assert compression_of(0x001) is CompressionType.LEGACY_ZLIB
    assert compression_of(0x101) is CompressionType.LZ4
    assert compression_of(0x201) is CompressionType.ZSTD
    assert compression_of(0x331) is CompressionType.ZLIB
    with pytest.raises(ProtocolError, match="unknown compression"):
        compression_of(0x401)


def test_zlib_bodies_look_like_javas():
    assert compress(b"x" * 5000, CompressionType.ZLIB)[:2] == b"\x78\x5e"


@pytest.mark.parametrize("compression", ALL)
def test_a_body_that_expands_beyond_the_bound_is_refused(compression):
    bomb = compress(bytes(100_000), compression)
    assert decompress(bomb, compression, bytes_max=100_000) == bytes(100_000)
    with pytest.raises(ProtocolError, match="bomb"):
        decompress(bomb, compression, bytes_max=99_999)


@pytest.mark.parametrize("compression", ALL)
def test_a_body_that_is_cut_off_is_refused(compression):
    packed = compress(bytes(range(256)) * 8, compression)
    with pytest.raises(ProtocolError):
        decompress(packed[:-5], compression)


@pytest.mark.parametrize("compression", ALL)
@given(st.binary(max_size=60))
def test_bytes_that_are_not_compressed_are_a_protocol_error(compression, data):
    try:
        decompress(data, compression)
    except ProtocolError:
        return


@pytest.mark.rule("W4.3c")
@pytest.mark.parametrize("name", ["lz4", "zstd"])
def test_without_the_extra_the_error_says_what_to_install(name, monkeypatch):
    def absent(module):
        raise ImportError(module)

    monkeypatch.setattr(importlib, "import_module", absent)
    with pytest.raises(ConfigurationError, match=r'pip install "gimbalmq\[compression\]"'):
        decompress(b"", CompressionType[name.upper()])


def test_zlib_needs_no_extra(monkeypatch):
    original = builtins.__import__

    def only_standard(name, *rest):
        if name.startswith(("lz4", "backports", "compression")):
            raise ImportError(name)
        return original(name, *rest)

    monkeypatch.setattr(builtins, "__import__", only_standard)
    assert decompress(zlib.compress(b"body"), CompressionType.LEGACY_ZLIB) == b"body"
