"""The command that takes a run back."""

from __future__ import annotations

import sys
from argparse import Namespace

from airflow_iceberg.cli.output import command, emit, load_table, printable


@command
def undo(args: Namespace) -> None:
    """Say what an undo would do; do it, if that was asked for and confirmed."""
    table = load_table(args)
    chosen = {
        "operation_key": args.operation_key,
        "dag_id": args.dag_id,
        "run_id": args.run_id,
        "task_id": args.task_id,
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
