"""The commands about a history: diff, and the undo of a run."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from airflow_iceberg.catalogs.names import split_levels
from airflow_iceberg.cli.output import command, emit, limit_of, load_table
from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.operations.history.diff import State, StateDiff
from airflow_iceberg.operations.history.diff import diff as compare
from airflow_iceberg.redaction import printable


@command
def undo(args: Namespace) -> None:
    """Say what an undo would do; do it, if that was asked for and confirmed."""
    table = load_table(args)
    chosen = {
        "operation_key": args.operation_key,
        "dag_id": args.dag_id,
        "run_id": args.run_id,
        "task_id": args.task_id,
        "map_index": args.map_index,
        "branch": args.branch,
    }
    planned = table.undo(**chosen, dry_run=True)
    result = planned
    if not args.dry_run and planned.undone_snapshot_ids:
        if not (args.yes or _is_confirmed(planned.lines())):
            raise SystemExit("nothing was changed")
        result = table.undo(**chosen)
    facts = result.to_xcom()
    if args.output in ("json", "yaml"):
        emit(args, [facts])
        return
    emit(args, [{"fact": name, "value": value} for name, value in facts.items() if value not in (None, [], "")])


def _is_confirmed(lines: list[str]) -> bool:
    sys.stderr.write("".join(f"{printable(line)}\n" for line in lines))
    sys.stderr.write("Undo this? (y/n) ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


@command
def diff(args: Namespace) -> None:
    """Show how two snapshots, branches or tables differ."""
    left, right = (_state(args, name) for name in (args.left, args.right))
    keys = [key.strip() for key in (args.key or "").split(",") if key.strip()]
    found = compare(left, right, key_columns=keys, limit=limit_of(args))
    if args.output in ("json", "yaml"):
        emit(args, [found.to_dict()])
        return
    emit(args, list(_summary(found)))
    if found.rows:
        sys.stdout.write("\n")
        emit(args, found.rows)


def _state(args: Namespace, text: str) -> State:
    """Return the state that a command names: `table`, `table#ref`, or with --table a branch, tag or snapshot id."""
    name, at = (args.table, text) if args.table else _name_and_place(text)
    return State.of(load_table(args, name), at or None)


def _name_and_place(text: str) -> tuple[str, str]:
    """Return the name of a table and what follows after a `#`, which may also be in backticks or quotes of the name."""
    at = text.find("#")
    while at >= 0:
        with suppress(InvalidInputError):
            split_levels(text[:at])
            return text[:at], text[at + 1 :]
        at = text.find("#", at + 1)
    return text, ""


def _summary(found: StateDiff) -> Iterator[dict[str, Any]]:
    if found.is_same:
        yield {"what": "all", "difference": "none"}
    for sentence in found.schema:
        yield {"what": "schema", "difference": sentence}
    for name, (before, after) in found.properties.items():
        yield {"what": "property", "difference": f"{name}: {before} -> {after}"}
    for name, (then, now) in list(found.partitions.items())[:20]:
        files, rows = (f"{then[number]} -> {now[number]}" for number in (0, 1))
        yield {"what": "partition", "difference": f"{name or 'all'}: {files} files, {rows} rows"}
    if len(found.partitions) > 20:
        yield {"what": "partition", "difference": f"and {len(found.partitions) - 20} more"}
    if found.counts:
        yield {"what": "rows", "difference": ", ".join(f"{count} {kind}" for kind, count in found.counts.items())}
    if found.note:
        yield {"what": "rows", "difference": found.note}
