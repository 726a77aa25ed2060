"""Tables written by Iceberg Java read as Java reads them, through the public surface alone.

No table is known by name here: whatever lies in the folder is held against what is expected of it.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from airflow_iceberg.errors import UnsupportedError
from airflow_iceberg.format import types as kinds
from airflow_iceberg.format.arrow.types import values_from_array
from airflow_iceberg.format.manifests.entries import DataFile
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.values.bytes import to_bytes, to_json
from airflow_iceberg.table import Table
from tests.support import golden
from tests.support.data_files import filtered
from tests.support.variants import Node, decode

NAMES = sorted(golden.tables())
REFUSED = [name for name in NAMES if golden.table(name).is_refused]
READABLE = [name for name in NAMES if name not in REFUSED]


def load(name: str) -> Table:
    table = golden.table(name)
    return Table.from_metadata(table.metadata_location, table.properties, io=table.io)


def canonical(kind: kinds.IcebergType, value: kinds.Value) -> Any:
    """Return a value as the expected rows spell it; see the README of the reference tables."""
    if value is None:
        return None
    match kind:
        case kinds.FloatType() | kinds.DoubleType():
            special = {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}
            return special.get(repr(value), value)
        case kinds.StructType():
            return {child.name: canonical(child.type, item) for child, item in zip(kind.fields, value, strict=True)}
        case kinds.ListType():
            return [canonical(kind.element, item) for item in value]
        case kinds.MapType():
            items = [[canonical(kind.key, key), canonical(kind.value, item)] for key, item in value.items()]
            return sorted(items, key=lambda item: json.dumps(item[0], sort_keys=True))
        case kinds.VariantType():
            return {"$variant": of_variant(decode(*value))}
        case kinds.TimestampNsType() | kinds.TimestamptzNsType():
            return with_fraction(to_json(kind, value), 9)
        case kinds.TimestampType() | kinds.TimestamptzType() | kinds.TimeType():
            return with_fraction(to_json(kind, value), 6)
        case kinds.DecimalType() | kinds.DateType() | kinds.UUIDType():
            return to_json(kind, value)
    return value.hex() if isinstance(value, bytes) else value


def of_variant(node: Node) -> Any:
    """Return a variant's value as the expected rows spell it."""
    if isinstance(node, dict):
        return {name: of_variant(item) for name, item in node.items()}
    if isinstance(node, list):
        return [of_variant(item) for item in node]
    return canonical(node.type, node.value)


def with_fraction(text: str, digits: int) -> str:
    """Spell out all digits of a second, and leave out the zone."""
    seconds, _, fraction = text.removesuffix("+00:00").partition(".")
    seconds = f"{seconds}:00" if seconds.count(":") == 1 else seconds
    return f"{seconds}.{fraction.ljust(digits, '0')}"


def rows_of(table: pa.Table, schema: Schema) -> list[str]:
    columns = [
        [canonical(field.type, value) for value in values_from_array(field.type, table[field.name])]
        for field in schema.fields
    ]
    names = [field.name for field in schema.fields]
    return lines_of(dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True))


def lines_of(rows: Iterable[Any]) -> list[str]:
    return sorted(json.dumps(row, sort_keys=True, ensure_ascii=False, separators=(",", ":")) for row in rows)


def digest(rows: list[str]) -> str:
    return hashlib.sha256("\n".join(rows).encode()).hexdigest()


class TestRows:
    """The rows of the current snapshot."""

    @pytest.mark.parametrize("name", READABLE)
    def test_they_are_those_that_java_reads_streamed_and_counted_too(self, name: str) -> None:
        table, expected = load(name), lines_of(golden.table(name).expected_rows())
        assert rows_of(table.scan().to_arrow(), table.schema()) == expected
        assert rows_of(table.scan().to_arrow_batch_reader().read_all(), table.schema()) == expected
        assert table.scan().count() == len(expected)

    @pytest.mark.parametrize("name", REFUSED)
    def test_a_format_that_is_not_finished_is_refused(self, name: str) -> None:
        version = golden.table(name).expected["format_version"]
        with pytest.raises(UnsupportedError, match=f"format version {version}"):
            load(name)


@pytest.mark.sample(2)
class TestTimeTravel:
    """The rows at each snapshot, in the schema that was current then; at each branch and tag."""

    @pytest.mark.costly
    @pytest.mark.parametrize("name", READABLE)
    def test_rows_at_each_snapshot(self, name: str) -> None:
        table = load(name)
        for expected in golden.table(name).expected["snapshots"]:
            if "sha256" not in expected:
                continue
            scan = table.scan(snapshot_id=expected["snapshot_id"])
            schema_id = expected["schema_id"]
            schema = table.schema() if schema_id is None else table.metadata.schema(schema_id)
            rows = rows_of(scan.to_arrow(), schema)
            assert (len(rows), digest(rows)) == (expected["rows"], expected["sha256"]), expected["snapshot_id"]

    @pytest.mark.parametrize("name", [name for name in READABLE if golden.table(name).expected.get("ref_rows")])
    def test_branches_have_the_current_schema_and_tags_their_own(self, name: str) -> None:
        table = load(name)
        for ref, expected in golden.table(name).expected["ref_rows"].items():
            found = table.scan(ref=ref).to_arrow()
            snapshot = table.metadata.ref_snapshot(ref)
            assert snapshot is not None
            is_branch = table.metadata.refs[ref].type == "branch"
            schema = table.schema() if is_branch else table.metadata.schema(snapshot.schema_id)
            rows = rows_of(found, schema)
            assert found.column_names == expected["columns"], ref
            assert (len(rows), digest(rows)) == (expected["rows"], expected["sha256"]), ref


LINEAGE = [(name, path.name) for name in READABLE for path in golden.table(name).expected_folder.glob("lineage*.jsonl")]


class TestRowLineage:
    """Each row of a v3 table has an id, and the number of the commit that changed it last."""

    @pytest.mark.parametrize(("name", "file"), LINEAGE)
    def test_they_are_those_that_java_reads(self, name: str, file: str) -> None:
        table, expected = load(name), golden.table(name).lines(file)
        snapshot_id = file.removesuffix(".jsonl").removeprefix("lineage").lstrip("-")
        scan = table.scan(
            selected_fields=tuple(expected[0]), snapshot_id=int(snapshot_id) if snapshot_id.isdigit() else None
        )
        assert rows_of(scan.to_arrow(), scan.projection) == lines_of(expected)


class TestFiles:
    """The live files of the current snapshot: data files, delete files and deletion vectors."""

    FIELDS = ("record_count", "file_size_in_bytes", "spec_id", "equality_ids", "sort_order_id", "split_offsets")
    MAPS = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts", "lower_bounds", "upper_bounds")

    @pytest.mark.parametrize("name", READABLE)
    def test_all_that_is_known_about_them(self, name: str) -> None:
        table = load(name)
        entries = table.inspect.entries().to_pylist()
        found = [self.described(table, entry) for entry in entries if entry["status"] != 2]
        expected = [self.wanted(file) for file in golden.table(name).expected["files"]]
        assert sorted(found, key=repr) == sorted(expected, key=repr)

    def described(self, table: Table, entry: dict[str, Any]) -> dict[str, Any]:
        file = entry["data_file"]
        result = {field: file[field] for field in self.FIELDS}
        maps = {field: dict(file[field] or ()) for field in self.MAPS}
        maps |= {field: {key: value.hex() for key, value in maps[field].items()} for field in self.MAPS[-2:]}
        return {
            **result,
            **maps,
            "content": file["content"],
            "path": relative(table, file["file_path"]),
            "format": file["file_format"].upper(),
            "sequence_numbers": (entry["sequence_number"], entry["file_sequence_number"]),
        }

    def wanted(self, file: dict[str, Any]) -> dict[str, Any]:
        maps = {field: {int(key): value for key, value in (file[field] or {}).items()} for field in self.MAPS}
        return {
            **{field: file[field] for field in self.FIELDS},
            **maps,
            "content": ("DATA", "POSITION_DELETES", "EQUALITY_DELETES").index(file["content"]),
            "path": file["path"],
            "format": file["format"],
            "sequence_numbers": (file["data_sequence_number"], file["file_sequence_number"]),
        }

    @pytest.mark.parametrize("name", READABLE)
    def test_their_partition_values(self, name: str) -> None:
        table = load(name)
        files = golden.table(name).expected["files"]
        # Deletion vectors share a path, so that values are compared as a list.
        expected = [(file["path"], self.parts(file, [part["bytes"] for part in file["partition"]])) for file in files]
        assert sorted(self.partitions(table), key=repr) == sorted(expected, key=repr)
        for file in files:
            spec = table.metadata.spec(file["spec_id"])
            assert [part["field_id"] for part in file["partition"]] == [field.field_id for field in spec.fields]

    def parts(self, file: dict[str, Any], values: list[str | None]) -> dict[str, str | None]:
        return {part["name"]: value for part, value in zip(file["partition"], values, strict=True)}

    def partitions(self, table: Table) -> Iterator[tuple[str, dict[str, str | None]]]:
        files = table.inspect.files()
        for row, (path, spec_id) in enumerate(zip(files["file_path"].to_pylist(), files["spec_id"].to_pylist())):
            spec = table.metadata.spec(spec_id)
            types = spec.partition_type(table.metadata.schema_of_spec(spec_id))
            values: dict[str, str | None] = {}
            for field, part in zip(spec.fields, types.fields, strict=True):
                column = files["partition"].combine_chunks().field(field.name).slice(row, 1)
                value = values_from_array(part.type, column)[0]
                values[field.name] = None if value is None else to_bytes(part.type, value).hex()
            yield relative(table, path), values


PLANS = [(name, plan) for name in READABLE for plan in golden.table(name).expected.get("plans", ())]
PLAN_IDS = [f"{name}-{plan['where']}" for name, plan in PLANS]


@pytest.mark.sample(3)
class TestPlans:
    """Filters plan the files that Java plans, and select the rows that SQL selects."""

    @pytest.mark.parametrize(("name", "plan"), PLANS, ids=PLAN_IDS)
    def test_the_same_files_or_better_ones(self, name: str, plan: dict[str, Any]) -> None:
        """Hold the plan against Java's; where they differ the rows must say that ours is right.

        Java loses rows of NaN, of -0.0 and of null structs, and reads some files in vain.
        """
        table, where = load(name), plan["where"]
        tasks = {relative(table, task.file.file_path): task for task in table.scan(row_filter=where).plan_files()}
        theirs = {task["path"]: task for task in plan["tasks"]}
        selected = rows_by_file(table, where) if tasks.keys() != theirs.keys() else {}
        assert all(selected.get(path) for path in tasks.keys() - theirs.keys()), "read in vain"
        assert not any(selected.get(path) for path in theirs.keys() - tasks.keys()), "rows are lost"
        for path in tasks.keys() & theirs.keys():
            deletes = {identity(table, file) for file in tasks[path].delete_files}
            assert deletes == set(theirs[path].get("deletes", ())), path
            if (str(tasks[path].residual) == "true") != (theirs[path]["residual"] == "true"):
                assert rows_by_file(table, where).get(path) == rows_by_file(table, None).get(path), path

    @pytest.mark.parametrize(("name", "where"), [(name, plan["where"]) for name, plan in PLANS], ids=PLAN_IDS)
    def test_the_rows_are_those_of_a_full_scan_filtered(self, name: str, where: str) -> None:
        table = load(name)
        schema = table.schema()
        expected = filtered(table.scan().to_arrow(), where, schema)
        found = table.scan(row_filter=where).to_arrow()
        assert rows_of(found, schema) == rows_of(expected, schema)
        assert table.scan(row_filter=where).count() == found.num_rows


def relative(table: Table, location: str) -> str:
    """Return a location as the expected plans and files spell it."""
    return location.removeprefix(f"{table.location}/").removeprefix("file:")


def identity(table: Table, file: DataFile) -> str:
    path = relative(table, file.file_path)
    return f"{path}@{file.content_offset}" if file.is_deletion_vector else path


def rows_by_file(table: Table, where: str | None) -> dict[str, int]:
    """Return how many rows of each file a filter selects, found without planning: every file is read."""
    schema = table.schema()
    rows = table.scan(selected_fields=("*", "_file")).to_arrow()
    if where is not None:
        rows = filtered(rows, where, schema)
    return dict(Counter(relative(table, path) for path in rows["_file"].to_pylist()))
