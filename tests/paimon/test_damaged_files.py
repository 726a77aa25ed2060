"""Damaged files give our own errors, in bounded time and memory, whatever stands in them.

A sample of what `python -m tests.paimon.fuzz --runs 100000` does, the same each time. `PAIMON_FUZZ` is how many inputs
of each kind are tried.
"""

import json
import os
from typing import Any

import pyarrow as pa
import pytest

from airflow_iceberg.errors import FormatError, UnsupportedError
from airflow_iceberg.format.avro.container import Limits, read_header, write_container, write_long
from airflow_iceberg.paimon import containers
from airflow_iceberg.paimon.containers import read_records
from airflow_iceberg.paimon.data_manifests import FileEntries, read_manifest
from airflow_iceberg.paimon.schema import PaimonSchema
from airflow_iceberg.paimon.snapshots import Snapshot
from tests.fuzz.containers import bomb
from tests.fuzz.runner import run
from tests.paimon import fuzz
from tests.support.paimon_writer import ENTRY
from tests.support.sampling import SEED, sampled

COUNT = int(os.environ.get("PAIMON_FUZZ", sampled(100)))


class TestDamagedFiles:
    """The answer is a value or one of our errors; anything else is a finding."""

    @pytest.mark.costly
    @pytest.mark.generated
    @pytest.mark.parametrize("name", fuzz.KINDS)
    def test_no_input_breaks_a_rule(self, name):
        outcome = run(name, seed=SEED, numbers=range(COUNT), trial=fuzz.trial_of, limit_s=fuzz.SECONDS)
        assert (outcome.findings, outcome.inputs) == ((), COUNT)
        # Damage that is always refused, or never, would show that it does not go deep, or does none.
        assert 0 < outcome.accepted < COUNT

    @pytest.mark.costly
    def test_a_rule_that_is_broken_is_found(self, monkeypatch):
        def breaks(data: bytes, more: Any) -> None:
            raise KeyError(len(data))

        kind = fuzz.KINDS["snapshot"]
        broken = fuzz.Kind(samples=kind.samples, damage=kind.damage, read=breaks)
        monkeypatch.setitem(fuzz.KINDS, "snapshot", broken)  # type: ignore[arg-type]
        outcome = run("snapshot", seed=7, numbers=range(3), trial=fuzz.trial_of)
        assert [finding.problem.splitlines()[-1].split(":")[0] for finding in outcome.findings] == ["KeyError"] * 3


class TestInputsThatBrokeARule:
    """They stay here."""

    def test_a_time_of_creation_that_no_calendar_has(self):
        data, schema = next(iter(fuzz.KINDS["manifest"].samples()))
        entries = read_manifest(data, schema.partition_fields, path="m")
        where = entries.columns.schema.get_field_index("creation_time")
        times = pa.array([2**62] * len(entries), pa.int64()).cast(entries.columns.schema.field(where).type)
        damaged = FileEntries(entries.columns.set_column(where, "creation_time", times), schema.partition_fields)
        with pytest.raises(FormatError, match=r"a file was created at a time that no calendar has: .* of m$"):
            list(damaged)

    @pytest.mark.parametrize("fields", [[], {}, "", [{"name": "a", "type": "null"}]], ids=repr)
    def test_very_many_records_of_nothing(self, fields):
        record = {"type": "record", "name": "r", "fields": fields}
        inner = {"type": "record", "name": "o", "fields": [{"name": "l", "type": {"type": "array", "items": record}}]}
        for schema in (record, inner):
            fresh = write_container({"avro.schema": json.dumps(schema)}, [], codec="null")
            header = read_header(fresh)
            block = write_long(2**40) + write_long(0) + header.sync
            with pytest.raises(FormatError, match="of nothing"):
                read_records(fresh + block, path="m")


class TestBombs:
    """A few bytes that decompress to very many are refused before they do."""

    def test_documents_of_very_many_values(self):
        for read in (Snapshot.from_json, PaimonSchema.from_json):
            with pytest.raises(
                FormatError, match=r"a JSON document of .* bytes, expected at most 16777216 with 500000"
            ):
                read(b'{"x": [' + b"[]," * 300_000 + b"[]]}", path="m")

    def test_records_of_a_list(self, monkeypatch):
        limits = Limits(most_bytes=1_000, most_block_bytes=500, most_records=10)
        monkeypatch.setattr(containers, "_OF_RECORDS", limits)
        schema = {"type": "record", "name": "r", "fields": [{"name": "a", "type": "bytes"}]}
        record = write_long(198) + bytes(198)
        for blocks, problem in (
            ([(11, record * 11)], "number of records"), ([(3, record * 3)], "block of 600 bytes"),
            ([(2, record * 2)] * 3, "(unexpected size|damaged)"),
        ):  # fmt: skip
            data = write_container({"avro.schema": json.dumps(schema)}, blocks, codec="deflate")
            with pytest.raises(FormatError, match=problem):
                read_records(bytes(data), path="m", is_limited=True)
            if problem.startswith("number"):  # an index manifest has a record for each bucket
                assert len(read_records(bytes(data), path="m")) == 11

    @pytest.mark.parametrize("data", [b"PAR1" + bytes(20) + b"PAR1", b"ORC" + bytes(20)])
    def test_orc_and_parquet_are_not_read_beside_the_work_of_others(self, data):
        with pytest.raises(UnsupportedError, match="has no limit of memory and is not read here; wait for the table"):
            read_records(data, path="m", is_limited=True)
        with pytest.raises(FormatError):
            read_records(data, path="m")

    @pytest.mark.costly
    @pytest.mark.parametrize("codec", ["deflate", "zstandard", "bzip2", "xz"])
    def test_by_codec(self, codec):
        block = bomb(codec, 40 << 20)
        fresh = write_container({"avro.schema": json.dumps(ENTRY)}, [], codec=codec)
        with pytest.raises(FormatError, match=f"^damaged {codec} block at byte .* of m$"):
            read_records(fresh + write_long(1) + write_long(len(block)) + block + fresh[-16:], path="m")
