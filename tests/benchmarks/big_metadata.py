"""A table of 100,000 files without a single one of them: metadata alone, for what only ever looks at metadata.

100 appends of 1,000 files each, ten columns with statistics, partitioned by the day of one column. Written with our own
`spec` modules, once below `build/bench`, in the order in which a table comes about. Clustered, each append holds a day
of its own, and a filter for a day drops all manifests but one; random, each holds all days, and none is dropped.
"""

import shutil
import struct
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from random import Random
from uuid import UUID

from airflow_iceberg.format.manifests.avro import read_manifest_list, write_manifest, write_manifest_list
from airflow_iceberg.format.manifests.entries import DataFile, EntryStatus, ManifestEntry, ManifestFile
from airflow_iceberg.format.manifests.summaries import describe_manifest
from airflow_iceberg.format.metadata import json as metadata_json
from airflow_iceberg.format.metadata.table_metadata import TableMetadata, new_table_metadata
from airflow_iceberg.format.metadata.updates import AddSnapshot, Change, SetSnapshotRef, apply_change
from airflow_iceberg.format.partitions.spec import spec_from_shorthand
from airflow_iceberg.format.schemas.shorthand import schema_from_shorthand
from airflow_iceberg.format.snapshots import Snapshot, SnapshotRef, summarize
from tests.benchmarks.measure import note

SNAPSHOTS, FILES_PER_SNAPSHOT = 100, 1_000
VERSION = 1  # of what is written: made anew when it changes
COLUMNS = {
    "l_orderkey": "long",
    "l_partkey": "long",
    "l_suppkey": "long",
    "l_linenumber": "int",
    "l_quantity": "double",
    "l_shipdate": "date",
    "l_updated_at": "timestamptz",
    "l_returnflag": "string",
    "l_shipmode": "string",
    "l_comment": "string",
}
FIRST_DAY = 19723  # 2024-01-01
FIRST_MS = FIRST_DAY * 86_400_000


def make(root: Path, *, layout: str = "clustered") -> Path:
    """Return the table's metadata file, made if it is not there; its location is the folder two levels above.

    Args:
        layout: "clustered" or "random".
    """
    return make_in(root / (f"big-{VERSION}" if layout == "clustered" else f"big-{VERSION}-{layout}"), layout)


def make_in(folder: Path, layout: str = "clustered") -> Path:
    """Return the table's metadata file, made if it is not there; the folder is its location."""
    metadata = folder / "metadata" / "00000-made.metadata.json"
    if not metadata.exists():
        note(f"making the metadata of {SNAPSHOTS * FILES_PER_SNAPSHOT} files in {folder}")
        shutil.rmtree(folder, ignore_errors=True)
        metadata.parent.mkdir(parents=True)
        metadata.write_bytes(metadata_json.write(_write(folder, layout)))
    return metadata


def make_larger(root: Path, times: int) -> Path:
    """Return the metadata file of a table whose one snapshot lists the manifests of the other `times` over.

    To planning that is a table of so many more files, without as many more manifests on the disk.
    """
    base = metadata_json.read(make(root).read_bytes())
    folder = root / f"big-{VERSION}-times-{times}"
    metadata = folder / "metadata" / "00000-made.metadata.json"
    if not metadata.exists():
        metadata.parent.mkdir(parents=True, exist_ok=True)
        last = base.current_snapshot()
        assert last is not None
        listed = read_manifest_list(Path(last.manifest_list.removeprefix("file://")).read_bytes())
        table = _with_snapshot(_empty(folder), 0, [*listed] * times, dict(last.summary))
        metadata.write_bytes(metadata_json.write(table))
    return metadata


def _write(folder: Path, layout: str) -> TableMetadata:
    table = _empty(folder)
    manifests: list[ManifestFile] = []
    with ProcessPoolExecutor(2) as pool:
        written = pool.map(_write_manifest, [folder] * SNAPSHOTS, range(SNAPSHOTS), [layout] * SNAPSHOTS)
        for number, (manifest, summary) in enumerate(written):
            # As in a list that is read again, the newest first and with its sequence number.
            manifests.insert(0, replace(manifest, sequence_number=number + 1, min_sequence_number=number + 1))
            table = _with_snapshot(table, number, manifests, summary)
    return table


def _empty(folder: Path) -> TableMetadata:
    schema = schema_from_shorthand(COLUMNS)
    return new_table_metadata(
        location=folder.as_uri(),
        schema=schema,
        spec=spec_from_shorthand(["l_shipdate"], schema),
        table_uuid=str(UUID(int=VERSION)),
        now_ms=FIRST_MS,
    )


def _write_manifest(folder: Path, number: int, layout: str) -> tuple[ManifestFile, dict[str, str]]:
    """Write the manifest of one snapshot; return its row in the list, and the summary as if it were the first."""
    table, snapshot_id, files = _empty(folder), number + 1, tuple(_files(folder, number, layout))
    entries = [ManifestEntry(status=EntryStatus.ADDED, snapshot_id=snapshot_id, data_file=file) for file in files]
    data = write_manifest(entries, schema=table.schema(), spec=table.spec(), format_version=2)
    path = folder / "metadata" / f"{UUID(int=number)}-m0.avro"
    path.write_bytes(data)
    manifest = describe_manifest(
        entries,
        path=path.as_uri(),
        length=len(data),
        spec=table.spec(),
        schema=table.schema(),
        snapshot_id=snapshot_id,
    )
    return manifest, summarize(added=files, removed=(), previous=None)


def _files(folder: Path, number: int, layout: str) -> Iterator[DataFile]:
    dice = Random(number)
    ids = range(1, len(COLUMNS) + 1)
    for position in range(FILES_PER_SNAPSHOT):
        day = FIRST_DAY + (number if layout == "clustered" else position % SNAPSHOTS)
        rows = dice.randrange(1_000, 1_500)
        order = (number * FILES_PER_SNAPSHOT + position) * 1_000
        lower, upper = _bounds(dice, day, order), _bounds(dice, day, order + 999)
        name = f"{number:05d}-{position}-{UUID(int=dice.getrandbits(128))}-00001.parquet"
        yield DataFile(
            file_path=f"{folder.as_uri()}/data/l_shipdate={day}/{name}",
            file_format="parquet",
            partition=(day,),
            spec_id=0,
            record_count=rows,
            file_size_in_bytes=rows * 55,
            column_sizes={column: dice.randrange(1_000, 9_000) for column in ids},
            value_counts=dict.fromkeys(ids, rows),
            null_value_counts=dict.fromkeys(ids, 0),
            nan_value_counts={5: 0},
            lower_bounds=dict(zip(ids, lower, strict=True)),
            upper_bounds=dict(zip(ids, upper, strict=True)),
            split_offsets=(4,),
            sort_order_id=0,
        )


def _bounds(dice: Random, day: int, order: int) -> tuple[bytes, ...]:
    text = f"{dice.getrandbits(60):x}".encode()[:16]
    part, supplier, line = dice.randrange(10**6), dice.randrange(10**4), dice.randrange(1, 8)
    moment = day * 86_400_000_000 + dice.randrange(10**9)
    numbers = struct.pack("<q", order), struct.pack("<q", part), struct.pack("<q", supplier), struct.pack("<i", line)
    return (
        *numbers,
        struct.pack("<d", line * 7),
        struct.pack("<i", day),
        struct.pack("<q", moment),
        b"A",
        b"AIR",
        text,
    )


def _with_snapshot(
    table: TableMetadata, number: int, manifests: list[ManifestFile], summary: dict[str, str]
) -> TableMetadata:
    parent, snapshot_id, moment = table.current_snapshot(), number + 1, FIRST_MS + number * 86_400_000
    parent_id = parent.snapshot_id if parent else None
    data = write_manifest_list(
        manifests, snapshot_id=snapshot_id, parent_snapshot_id=parent_id, sequence_number=number + 1, format_version=2
    )
    name = f"snap-{snapshot_id}-1-{UUID(int=number)}.avro"
    (Path(table.location.removeprefix("file://")) / "metadata" / name).write_bytes(data)
    snapshot = Snapshot(
        snapshot_id=snapshot_id,
        parent_snapshot_id=parent_id,
        sequence_number=number + 1,
        timestamp_ms=moment,
        manifest_list=f"{table.location}/metadata/{name}",
        summary=_added_up(summary, parent.summary if parent else {}),
        schema_id=0,
    )
    head = SnapshotRef(snapshot_id=snapshot_id, type="branch")
    updates = (AddSnapshot(snapshot=snapshot), SetSnapshotRef(ref_name="main", ref=head))
    return apply_change(table, Change(updates=updates, requirements=()), now_ms=moment, base_location=None)


def _added_up(summary: Mapping[str, str], parent: Mapping[str, str]) -> dict[str, str]:
    totals = {key: value for key, value in summary.items() if key.startswith("total-")}
    return {**summary, **{key: str(int(value) + int(parent.get(key, "0"))) for key, value in totals.items()}}
