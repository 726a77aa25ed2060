"""Random histories of a table: rows of every type come, go and are rewritten, while schema and partitioning change.

    table = new_table(folder, ...)
    make(table, random.Random(7), kind, steps=8)

Not here: what a history is compared with.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from airflow_iceberg.jobs.run_local import run_local
from airflow_iceberg.operations.compact import CompactRequest, compact
from airflow_iceberg.operations.rewrite_manifests import RewriteManifestsRequest, rewrite_manifests
from airflow_iceberg.operations.work import Work
from airflow_iceberg.table import Table
from tests.support.builders import new_table
from tests.support.case_runs import delete_by_equality
from tests.support.case_types import Kind, arrow_type

STRUCT = pa.struct([("x", pa.float64()), ("y", pa.string())])
COLUMNS = {
    "id": "long",
    "n": "int",
    "tags": "list<string>",
    "st": "struct<x: double, y: string>",
    "m": "map<string, int>",
}
_TAGS = (None, [], ["a"], ["a", None], ["b", "a"])
_STRUCTS = (None, {"x": None, "y": "a"}, {"x": float("nan"), "y": None}, {"x": -0.0, "y": ""}, {"x": 0.0, "y": ""})
_MAPS = (None, [], [("k", 1)], [("k", None), ("l", 2)])


def start(folder: Any, version: int, kind: Kind, dice: random.Random, **more: Any) -> Table:
    """Return a table without rows, whose column `v` has any type."""
    terms = ([], ["v"] if "identity" in kind.transforms else [], [dice.choice(kind.transforms)], ["bucket(2, id)"])
    term = dice.choice(terms)
    named = [text if text in ("v", "bucket(2, id)") else _term(text) for text in term]
    properties = {"format-version": str(version), "write.delete.mode": "copy-on-write", **more}
    return new_table(folder, schema={**COLUMNS, "v": kind.type}, partition_by=named, properties=properties)


def _term(transform: str) -> str:
    if transform == "identity":
        return "v"
    name, _, rest = transform.partition("[")
    return f"{name}({rest.removesuffix(']')}, v)" if rest else f"{name}(v)"


def rows(table: Table, kind: Kind, dice: random.Random, count: int) -> pa.Table:
    """Return rows of few different values, some of them equal."""
    known = {field.name: field for field in table.schema().fields}
    value = next(name for name in known if name.startswith("v"))
    drawn: dict[str, pa.Array] = {
        "id": pa.array([dice.randrange(1, 9) for _ in range(count)], pa.int64()),
        "n": pa.array([dice.choice((None, 1, 2)) for _ in range(count)], pa.int32()),
        "tags": pa.array([dice.choice(_TAGS) for _ in range(count)], pa.list_(pa.string())),
        "st": pa.array([dice.choice(_STRUCTS) for _ in range(count)], STRUCT),
        "m": pa.array([dice.choice(_MAPS) for _ in range(count)], pa.map_(pa.string(), pa.int32())),
        value: pa.array([_plain(dice.choice((None, *kind.values[:3]))) for _ in range(count)], arrow_type(kind)),
        "extra": pa.array([dice.choice((None, "x")) for _ in range(count)], pa.string()),
    }
    return pa.table({name: column for name, column in drawn.items() if name in known})


def _plain(value: Any) -> Any:
    return value.bytes if hasattr(value, "bytes") and hasattr(value, "hex") and not isinstance(value, bytes) else value


STEPS = (
    *("append", "append", "delete", "delete", "overwrite", "equality", "compact", "manifests", "alter", "same again"),
    *("merge", "update", "upsert"),
)


MERGE = (
    "when matched and source.n = 1 then delete when matched then update set n = source.n "
    "when not matched and source.id < 5 then insert (id, n) values (source.id, source.n) "
    "when not matched by source and target.id = 8 then update set n = 7"
)


def _mode(version: int, dice: random.Random) -> str:
    return "copy-on-write" if version == 1 or dice.random() < 0.4 else "merge-on-read"


def make(
    table: Table, dice: random.Random, kind: Kind, *, steps: int, chosen: Sequence[str] = STEPS, unique: bool = False
) -> None:
    """Do some random steps.

    Args:
        unique: whether no two rows have an id; only for steps that keep it so.
    """
    first = rows(table, kind, dice, 12)
    table.append(_by_id(first) if unique else first)
    for _ in range(steps):
        _do(table, dice.choice(chosen), dice, kind)


def _by_id(found: pa.Table) -> pa.Table:
    """Return the last of the rows with each id."""
    places = {number: at for at, number in enumerate(found["id"].to_pylist())}
    return found.take(list(places.values()))


def _do(table: Table, step: str, dice: random.Random, kind: Kind) -> None:
    version = table.metadata.format_version
    ids = sorted(dice.sample(range(1, 9), 2))
    where = f"id in ({', '.join(map(str, ids))})"
    match step:
        case "append":
            table.append(rows(table, kind, dice, dice.randrange(1, 6)))
        case "delete":
            table.delete(where, mode=_mode(version, dice))
        case "overwrite":
            fresh = rows(table, kind, dice, 4)
            column = pa.array([dice.choice(ids) for _ in range(4)], pa.int64())
            table.overwrite(fresh.set_column(fresh.column_names.index("id"), "id", column), where)
        case "merge":
            fresh = rows(table, kind, dice, 9).select(["id", "n"])
            table.merge(_by_id(fresh), ["id"], MERGE, mode=_mode(version, dice))
        case "update":
            table.update({"n": "coalesce(n, 0) + 1"}, where, mode=_mode(version, dice))
        case "upsert":
            fresh = rows(table, kind, dice, 3)
            table.upsert(_by_id(fresh), ["id"], mode=_mode(version, dice))
        case "same again":
            # Most rows are the same again, in one commit.
            found = table.scan(row_filter=where).to_arrow()
            table.overwrite(pa.concat_tables([found, found.slice(0, 1)]), where)
        case "equality" if version > 1:
            delete_by_equality(table, ids)
        case "compact":
            work = Work(table, run=lambda plan: run_local(plan, table.io, threads=1))
            compact(work, CompactRequest(options={"rewrite-all": "true", "remove-dangling-deletes": "true"}))
        case "manifests":
            rewrite_manifests(Work(table), RewriteManifestsRequest())
        case "alter":
            alter(table, dice)
    table.refresh()


def alter(table: Table, dice: random.Random) -> None:
    """Change schema or partitioning by one step that is possible now."""
    names = {field.name: field for field in table.schema().fields}
    value = next(name for name in names if name.startswith("v"))
    possible: list[dict[str, Any]] = [{"rename_column": {"from": value, "to": "v2" if value == "v" else "v"}}]
    possible.append(
        {"drop_column": "extra"} if "extra" in names else {"add_column": {"name": "extra", "type": "string"}}
    )
    if "tags" in names:
        possible.append({"drop_column": "tags"})
    if str(names["n"].type) == "int":
        possible.append({"change_type": {"name": "n", "type": "long"}})
    if not table.spec().fields:
        possible.append({"add_partition_field": "bucket(3, id)"})
    table.alter([dice.choice(possible)])


def counted(batches: pa.Table) -> Counter[str]:
    """Return rows as texts that are equal where the rows are."""
    columns = []
    for column in batches.columns:
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.int64())
        columns.append([repr(value) for value in column.to_pylist()])
    return Counter(map(str, zip(*columns, strict=True))) if columns else Counter()


def rows_at(table: Table, snapshot_id: int | None, *, like: int | None = None, **options: Any) -> Counter[str]:
    """Return the rows of a snapshot in the columns of another one, by default of the table."""
    if snapshot_id is None:
        return Counter()
    shape = table.scan(snapshot_id=like, **options)
    scan = replace(table.scan(snapshot_id=snapshot_id), schema=shape.schema, projection=shape.projection)
    return counted(replace(scan, row_filter=shape.row_filter).to_arrow_batch_reader().read_all())
