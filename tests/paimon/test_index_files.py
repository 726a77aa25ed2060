"""Deletion vectors of 32 and 64 bits and hash indexes: the bytes, and bytes that are none."""

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_iceberg.errors import FormatError, UnsupportedError
from airflow_iceberg.format.deletion_vectors import RowPositions
from airflow_iceberg.paimon.index_files import MAGIC_32, check_vector_file, read_hashes, read_vector
from airflow_iceberg.paimon.index_manifests import IndexFile, VectorRange, read_index_manifest
from tests.support.paimon_writer import EMPTY_ROW, INDEX, schema_of, write_avro
from tests.support.sampling import examples

REAL_32 = bytes.fromhex("000000185e43f2d03a300000010000000000010010000000" + "02000300" + "c898f63d")
REAL_64 = bytes.fromhex(
    "00000024d1d33964010000000000000000000000" + "3a300000010000000000010010000000" + "02000300" + "7a813847"
)


def as_32(positions: list[int]) -> bytes:
    """Return a vector of 32 bits: the bitmap of one of 64 with the upper bits 0."""
    bitmap = RowPositions.of(positions).to_blob()[20:-4]
    covered = MAGIC_32 + bitmap
    return len(covered).to_bytes(4, "big") + covered + zlib.crc32(covered).to_bytes(4, "big")


def vector(length: int, cardinality: int | None = None) -> VectorRange:
    return VectorRange(data_file="data-1.parquet", offset=1, length=length, cardinality=cardinality)


def index(size: int, rows: int, kind: str = "HASH") -> IndexFile:
    return IndexFile(partition=(), bucket=0, index_type=kind, file_name="index-1", file_size_bytes=size, row_count=rows)


class TestDeletionVectors:
    """A manifest counts the content of vectors of 32 bits, and all of those of 64."""

    @pytest.mark.parametrize(("blob", "length"), [(REAL_32, 24), (REAL_64, 44)])
    def test_real_vectors(self, blob, length):
        assert read_vector(blob + b"more", vector(length, 2)).to_array().tolist() == [2, 3]

    @examples(50)
    @given(positions=st.lists(st.integers(0, 2**31), min_size=1, max_size=200))
    def test_any_rows_in_both_forms(self, positions):
        wide, narrow = RowPositions.of(positions).to_blob(), as_32(positions)
        expected = sorted(set(positions))
        assert read_vector(wide, vector(len(wide))).to_array().tolist() == expected
        assert read_vector(narrow, vector(len(narrow) - 8)).to_array().tolist() == expected

    def test_rows_beyond_32_bits(self):
        blob = RowPositions.of([1, 2**40]).to_blob()
        assert read_vector(blob, vector(len(blob), 2)).to_array().tolist() == [1, 2**40]

    @pytest.mark.parametrize(("blob", "length", "rows", "message"), [
        (REAL_32, 24, 3, r"^2 rows \(expected 3\) in the deletion vector of data-1.parquet at byte 1 of f$"),
        (REAL_32, 32, 2, r"^unexpected size 24 \(expected 32\) in the deletion vector"),
        (REAL_64, 36, 2, r"^unexpected size 36 \(expected 28\) in the deletion vector"),
        (REAL_32[:-1], 24, 2, r"^unexpected size 24 \(expected 24\) in the deletion vector"),
        (REAL_32[:-1] + b"x", 24, 2, r"^the checksum differs in the deletion vector of data-1.parquet"),
        (b"\0\0\0\1PAR1", 24, 2, r"^unexpected magic 50415231 \(expected 5e43f2d0 or d1d33964\) in the deletion"),
        (b"", 24, 2, r"^unexpected magic nothing "),
    ])  # fmt: skip
    def test_what_is_wrong_is_said(self, blob, length, rows, message):
        with pytest.raises(FormatError, match=message):
            read_vector(blob, vector(length, rows), path="f")

    def test_a_file_of_another_size_or_version(self):
        with pytest.raises(FormatError, match=r"^unexpected 3 bytes \(expected 9 by its manifest\) of f$"):
            check_vector_file(b"\1ab", index(9, 1), path="f")
        with pytest.raises(UnsupportedError, match=r"^version 02 of deletion vectors \(known: 01\) of f$"):
            check_vector_file(b"\2ab", index(3, 1), path="f")


class TestHashes:
    """Hashes are numbers of four bytes, big-endian."""

    def test_they_are_read_and_are_as_many_as_the_manifest_says(self):
        assert read_hashes(bytes.fromhex("ffffffff00000007"), index(8, 2)).tolist() == [-1, 7]
        with pytest.raises(FormatError, match=r"^unexpected 8 bytes \(expected 4 for each of 3 hashes\) of f$"):
            read_hashes(bytes(8), index(8, 3), path="f")


class TestIndexManifests:
    """An index manifest is complete: it only adds."""

    ENTRY = {
        **{"_VERSION": 1, "_KIND": 0, "_PARTITION": EMPTY_ROW, "_BUCKET": 0, "_INDEX_TYPE": "DELETION_VECTORS"},
        **{"_FILE_NAME": "index-1", "_FILE_SIZE": 9, "_ROW_COUNT": 1, "_DELETIONS_VECTORS_RANGES": None},
    }

    @pytest.mark.parametrize(("change", "message"), [
        (
            {"_KIND": 1},
            r"^unexpected kind 1 \(expected 0, since an index manifest is complete\) in '\[0\]._KIND' of m",
        ),
        (
            {"_DELETIONS_VECTORS_RANGES": [{"f0": "a", "f1": 1, "f2": 2}] * 2},
            r"^two deletion vectors of one file in '\[0\]._DELETIONS_VECTORS_RANGES' of m$",
        ),
        (
            {"_DELETIONS_VECTORS_RANGES": [{"f0": "a", "f1": -1, "f2": 2}]},
            r"^unexpected 2 bytes at -1 in '\[0\]._DELETIONS_VECTORS_RANGES\[0\]' of m$",
        ),
    ])  # fmt: skip
    def test_what_breaks_the_rules_is_refused(self, change, message):
        data = write_avro(INDEX, [{**self.ENTRY, **change}])
        with pytest.raises(FormatError, match=message):
            read_index_manifest(data, schema_of(), path="m")

    def test_another_version_is_refused(self):
        data = write_avro(INDEX, [{**self.ENTRY, "_VERSION": 2}])
        with pytest.raises(UnsupportedError, match=r"^unexpected version 2 of the index manifest \(known: 1\) of m$"):
            read_index_manifest(data, schema_of(), path="m")
