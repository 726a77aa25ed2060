"""The commands that show a table: show, snapshots, refs, files, runs."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from itertools import islice
from operator import itemgetter
from typing import Any

from airflow_iceberg.cli.output import command, emit, limit_of, load_table
from airflow_iceberg.operations.history.diff import State
from airflow_iceberg.operations.reports.table_facts import ref_facts, table_facts, utc_text
from airflow_iceberg.redaction import hide


@command
def show(args: Namespace) -> None:
    """Show what a table is: one row a fact."""
    table = load_table(args)
    facts: dict[str, Any] = {"table": table.name}
    for name, value in table_facts(table).items():
        if name == "committed_at_ms":
            facts["committed_at"] = None if value is None else utc_text(value)
        elif name != "updated_ms":
            facts[name] = value
    facts["properties"] = {name: hide(name, value) for name, value in sorted(table.properties.items())}
    if args.output in ("json", "yaml"):
        emit(args, [facts])
        return
    emit(args, [{"fact": name, "value": value} for name, value in facts.items()])


@command
def snapshots(args: Namespace) -> None:
    """List snapshots, newest first."""
    found = [_named(one.to_dict()) for one in islice(load_table(args).runs(branch=args.branch), limit_of(args))]
    emit(
        args,
        found,
        {
            **{name: itemgetter(name) for name in ("snapshot_id", "committed_at", "operation")},
            "rows": _rows,
            "files": _files,
            "refs": itemgetter("refs"),
        },
    )


@command
def runs(args: Namespace) -> None:
    """Show who made the snapshots, newest first."""
    table = load_table(args)
    every = table.runs(branch=args.branch, dag_id=args.dag_id, run_id=args.run_id, task_id=args.task_id)
    emit(
        args,
        [_named(one.to_dict()) for one in islice(every, limit_of(args))],
        {
            **{name: itemgetter(name) for name in ("snapshot_id", "committed_at")},
            "task": _task,
            "run": itemgetter("run_id"),
            "try": itemgetter("try_number"),
            "rows": _rows,
            "read": _inputs,
            "note": _note,
        },
    )


@command
def refs(args: Namespace) -> None:
    """List branches and tags."""
    found = [_named(one.to_dict()) | {"retention": one.retention} for one in ref_facts(load_table(args).metadata)]
    names = ("name", "type", "snapshot_id", "committed_at", "retention")
    emit(args, found, {name: itemgetter(name) for name in names})


@command
def files(args: Namespace) -> None:
    """List files of one snapshot, in the order of its manifests."""
    table = load_table(args)
    at = State.of(table, args.at).snapshot
    found = table.inspect.files(None if at is None else at.snapshot_id).slice(0, limit_of(args))
    kinds = ("data", "position deletes", "equality deletes")
    names = ("file_path", "file_format", "record_count", "file_size_in_bytes", "partition", "spec_id")
    rows = [
        {"content": kinds[row["content"]], **{name: row.get(name) for name in names}}
        for row in found.select([n for n in found.column_names if n in ("content", *names)]).to_pylist()
    ]
    root = table.location.rstrip("/") + "/"
    emit(
        args,
        rows,
        {
            "content": itemgetter("content"),
            "rows": itemgetter("record_count"),
            "bytes": itemgetter("file_size_in_bytes"),
            "partition": itemgetter("partition"),
            "file": lambda row: str(row["file_path"]).removeprefix(root),
        },
    )


def _named(row: dict[str, Any]) -> dict[str, Any]:
    at_ms = row["committed_at_ms"]
    return {**row, "committed_at": None if at_ms is None else utc_text(at_ms)}


def _task(row: Mapping[str, Any]) -> str:
    if row["task_id"] is None:
        return f"({row['writer'] or 'another writer'})"
    index = row["map_index"]
    return f"{row['dag_id']}.{row['task_id']}" + (f"[{index}]" if index is not None and index >= 0 else "")


def _rows(row: Mapping[str, Any]) -> str:
    counts = (("+", "added_records"), ("~", "updated_records"), ("-", "deleted_records"))
    return " ".join(f"{sign}{row[name]}" for sign, name in counts if row[name])


def _files(row: Mapping[str, Any]) -> str:
    added = row["added_data_files"] + row["added_delete_files"]
    removed = row["deleted_data_files"] + row["removed_delete_files"]
    return " ".join(f"{sign}{count}" for sign, count in (("+", added), ("-", removed)) if count)


def _inputs(row: Mapping[str, Any]) -> str:
    found = row["inputs"].values()
    return ", ".join(str(one.get("table")) for one in found if isinstance(one, dict))


def _note(row: Mapping[str, Any]) -> str:
    notes = [] if row["is_in_main"] else ["not in main"]
    notes += [f"undone by {row['undone_by']}"] if row["undone_by"] else []
    notes += [f"undoes {', '.join(row['undoes'])}"] if row["undoes"] else []
    return "; ".join(notes)
