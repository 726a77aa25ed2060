"""Units of a file inventory: how they are cut, how they travel, and their results."""

import threading
from collections.abc import Iterator
from typing import ClassVar

import pyarrow as pa
import pytest

from airflow_iceberg.errors import FormatError, NotFoundError
from airflow_iceberg.format.manifests.entries import ManifestContent, ManifestFile
from airflow_iceberg.inventory.run import Progress, run_units
from airflow_iceberg.inventory.units import (
    UNIT_BYTES,
    UNIT_MANIFESTS,
    ListingUnit,
    ManifestUnit,
    Tick,
    entry_count,
    manifest_units,
    read_outcome,
    read_unit,
    run_unit,
    write_unit,
)
from airflow_iceberg.storage.base import FileIO
from tests.support.memory import MemoryFileIO


def manifest(number: int, **given: object) -> ManifestFile:
    settings = {
        "manifest_path": f"memory://t/{number}.avro", "manifest_length": 1000, "partition_spec_id": 0,
        "sequence_number": 7, "min_sequence_number": 3, "added_snapshot_id": 2**60 + number, "added_files_count": 1,
        "existing_files_count": 2, "deleted_files_count": 3,
    }  # fmt: skip
    return ManifestFile(**{**settings, **given})  # type: ignore[arg-type]


class TestCutting:
    """Units are of about the same size, hold every manifest once, and keep their order."""

    @pytest.mark.parametrize("length", [1, 1000, UNIT_BYTES // 3, UNIT_BYTES, 3 * UNIT_BYTES])
    def test_every_manifest_is_in_one_unit(self, length: int) -> None:
        manifests = [manifest(number, manifest_length=length) for number in range(100)]
        units = manifest_units(manifests, is_live=True)
        assert [one for unit in units for one in unit.manifests] == manifests
        assert all(len(unit.manifests) <= UNIT_MANIFESTS for unit in units)
        assert all(unit.weight <= UNIT_BYTES or len(unit.manifests) == 1 for unit in units)

    def test_no_manifests_no_units_and_a_very_large_table_has_a_thousand(self) -> None:
        manifests = [manifest(number, manifest_length=8 << 20) for number in range(20_000)]
        assert 500 < len(manifest_units(manifests, is_live=True)) <= 1100
        assert manifest_units([], is_live=True) == []

    def test_entries_are_counted_by_the_list_or_else_by_length(self) -> None:
        assert entry_count(manifest(0)) == 6
        assert entry_count(manifest(0, added_files_count=None, manifest_length=1501)) == 11


class TestDocuments:
    """A unit comes out of its document as it went in."""

    @pytest.mark.parametrize("unit", [
        ManifestUnit(manifests=(manifest(1), manifest(2, content=ManifestContent.DELETES, first_row_id=9))),
        ManifestUnit(manifests=(manifest(1, added_files_count=None),), is_live=False, with_paths=True),
        ManifestUnit(manifests=(), may_be_missing=True),
        ListingUnit(root="s3://b/ä t/", folders=("data/day=1", ""), partition_names=("_p",), before_ms=17),
    ])  # fmt: skip
    def test_there_and_back(self, unit: ManifestUnit | ListingUnit) -> None:
        assert read_unit(write_unit(unit), path="x") == unit

    @pytest.mark.parametrize("data", [b"", b"x", write_unit(ManifestUnit(manifests=()))[:-9]])
    def test_a_damaged_one_is_an_error_with_its_path(self, data: bytes) -> None:
        with pytest.raises(FormatError, match="the document of a unit of an inventory is damaged") as caught:
            read_unit(data, path="file:///x")
        assert caught.value.path == "file:///x"


class TestMissingManifests:
    """A manifest that is gone is an error, unless what it named was to go anyway."""

    def test_by_what_the_unit_says(self) -> None:
        io, gone = MemoryFileIO(), (manifest(1),)
        with pytest.raises(NotFoundError):
            run_unit(io, ManifestUnit(manifests=gone))
        outcome = read_outcome(run_unit(io, ManifestUnit(manifests=gone, may_be_missing=True)))
        assert (outcome.files, outcome.rows, list(outcome.batches())) == (0, 0, [])


class Waiting(ListingUnit):
    """A unit whose store answers only once a number of units ask it at the same time."""

    together: ClassVar[threading.Barrier]

    def run(self, io: FileIO, tick: Tick) -> Iterator[pa.RecordBatch]:
        self.together.wait(timeout=60)
        tick(int(self.folders[0]), 0)
        yield from ()


class TestRunningHere:
    """Units that leave the processor idle run side by side, and their outcomes come in the order of the units."""

    def test_units_that_wait_for_their_store_run_side_by_side(self) -> None:
        Waiting.together = threading.Barrier(8)
        units = [Waiting(root="", folders=(str(number),), before_ms=0) for number in range(16)]
        outcomes = run_units(MemoryFileIO(), units, Progress("units", whole=len(units)))
        assert [outcome.files for outcome in outcomes] == list(range(16))
