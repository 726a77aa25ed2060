"""Decompression is linear in time and limited in size, whatever the bytes are."""

import gzip
import json
import tracemalloc
import zlib
from typing import Any

import cramjam
import pyarrow as pa
import pytest

from airflow_iceberg.errors import FormatError
from airflow_iceberg.format import decompression
from airflow_iceberg.format.decompression import ALWAYS_ALLOWED_BYTES, gunzip, unsnappy
from airflow_iceberg.format.metadata.json import read
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.inventory.units import read_unit
from airflow_iceberg.jobs.protocol.seal import SealedFile
from airflow_iceberg.jobs.protocol.table_input import TableInput, read_work
from tests.support.memory import MemoryFileIO

EMPTY = gzip.compress(b"", mtime=0)


class _Counting:
    """A decompressor that counts the bytes that it is given, and those that it gives back."""

    moved = 0

    def __init__(self, real: Any) -> None:
        self._real = real

    def decompress(self, data: Any, *limits: int) -> bytes:
        result: bytes = self._real.decompress(data, *limits)
        _Counting.moved += len(data) + len(self._real.unused_data) + len(result)
        return result

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def moved_for(data: bytes, monkeypatch: pytest.MonkeyPatch) -> int:
    real = zlib.decompressobj
    _Counting.moved = 0
    with monkeypatch.context() as patch:
        patch.setattr(zlib, "decompressobj", lambda *args, **kwargs: _Counting(real(*args, **kwargs)))
        gunzip(data)
    return _Counting.moved


class TestSnappy:
    """The first bytes say how large the result is; neither they nor the others are believed."""

    @pytest.mark.parametrize("data", [b"", b"a", bytes(range(256)) * 4000], ids=len)
    def test_what_another_library_has_compressed(self, data: bytes) -> None:
        assert unsnappy(bytes(cramjam.snappy.compress_raw(data))) == data

    @pytest.mark.parametrize("size", [b"\xff" * 4 + b"\x0f", b"\xff" * 5, b"\xff" * 50], ids=["4 GiB", "5", "50"])
    def test_a_size_that_is_absurd_is_refused(self, size: bytes) -> None:
        with pytest.raises(ValueError, match="it grows to more than"):
            unsnappy(size + b"\x00a")

    @pytest.mark.parametrize("data", [b"", b"\x05", b"\x05\x00a", b"\x80", b"\x02\x00a", bytes(64)], ids=bytes.hex)
    def test_damaged_bytes_are_an_error(self, data: bytes) -> None:
        with pytest.raises((OSError, ValueError, pa.ArrowException)):
            unsnappy(data)


class TestGzip:
    """Several members follow each other, with zeros between them."""

    @pytest.mark.parametrize("padding", [b"", b"\0" * 7])
    @pytest.mark.parametrize(
        "parts", [[b""], [b"a"], [b"a" * 100_000], [b"", b"a", b"", bytes(range(256)) * 999, b"b"]]
    )
    def test_members_are_joined(self, parts: list[bytes], padding: bytes) -> None:
        data = b"".join(gzip.compress(part) + padding for part in parts)
        assert gunzip(data) == b"".join(parts) == gzip.decompress(data)

    @pytest.mark.parametrize(
        "member",
        [EMPTY, EMPTY + b"\0" * 40, gzip.compress(b"ab", mtime=0), gzip.compress(bytes(3000), mtime=0)],
        ids=["empty", "padded", "two bytes", "zeros"],
    )
    def test_the_work_grows_like_the_bytes_with_many_members(self, member: bytes, monkeypatch: Any) -> None:
        once, twice, four_times = (moved_for(member * count, monkeypatch) for count in (1000, 2000, 4000))
        assert once < 10 * len(member) * 1000 + 4000 * 1000
        assert (twice, four_times) == (2 * once, 4 * once) or four_times < 4.1 * once

    @pytest.mark.costly
    def test_nobody_needs_so_many_members(self) -> None:
        with pytest.raises(ValueError, match="more than 65536 gzip members"):
            gunzip(EMPTY * ((1 << 16) + 1))
        with pytest.raises(FormatError, match="more than 65536 gzip members"):
            read(EMPTY * ((1 << 16) + 1), path="s3://b/t/v1.gz.metadata.json")

    @pytest.mark.parametrize("cut", [1, 9, 15, len(EMPTY) - 1])
    def test_bytes_that_end_too_early(self, cut: int) -> None:
        for data in (EMPTY[:cut], gzip.compress(b"a") + EMPTY[:cut]):
            with pytest.raises((EOFError, zlib.error)):
                gunzip(data)

    def test_a_bomb_of_several_members_is_refused(self) -> None:
        member = gzip.compress(bytes(ALWAYS_ALLOWED_BYTES // 4))
        with pytest.raises(ValueError, match="it grows to more than"):
            gunzip(member * 5)


class TestDocumentsOfJobs:
    """They lie in the table's folder, where another user may have put other ones."""

    def read(self, kind: str, data: bytes) -> Any:
        if kind == "unit":
            return read_unit(data, path="memory://t/unit")
        io = MemoryFileIO()
        work = SealedFile.create(io, "memory:///t/work", data)
        return read_work(io, TableInput(work=work, schemas=(Schema(),), specs=()))

    @pytest.mark.costly
    @pytest.mark.parametrize("kind", ["unit", "work"])
    def test_they_are_decompressed_with_limits(self, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
        with pytest.raises(FormatError, match="more than 65536 gzip members"):
            self.read(kind, EMPTY * ((1 << 16) + 1))
        for module in ("inventory.units", "jobs.protocol.table_input"):
            monkeypatch.setattr(f"airflow_iceberg.{module}.DOCUMENT_LIMIT", 1 << 20)
        bomb = gzip.compress(json.dumps({"x": "0" * (64 << 20)}).encode())
        tracemalloc.start()
        try:
            with pytest.raises(FormatError, match="it grows to more than 1048576 bytes"):
                self.read(kind, bomb)
            assert tracemalloc.get_traced_memory()[1] < 8 << 20
        finally:
            tracemalloc.stop()

    def test_their_limit_is_wider_than_that_of_others(self) -> None:
        assert decompression.size_limit(1 << 20) < decompression.DOCUMENT_LIMIT
