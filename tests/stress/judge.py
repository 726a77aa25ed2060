"""What has to be in the table, from the journals and the order of the commits alone; held against what is in it.

The order is that of the sequence numbers: each commit has one of its own. An operation is in the table if its actor was
told so, in the end; as every actor goes on until it knows, there are no others. Overwrites and deletes are validated
against rows that came meanwhile, so that the table has to look as if all of them had come one after the other.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from airflow_iceberg.commit.operation_key import OPERATION_KEY, OperationKey
from airflow_iceberg.errors import IcebergError
from airflow_iceberg.operations.quarantine import quarantines
from airflow_iceberg.operations.remove_orphan_files import RemoveOrphanFilesRequest, known_files, remove_orphan_files
from airflow_iceberg.operations.work import Work
from airflow_iceberg.table import Table
from tests.stress.actors import DAY_MS, Stage, rows_of
from tests.stress.journal import Operation, journals, now_ms
from tests.stress.rows import Row, effect
from tests.support.builders import reachable


@dataclass
class Verdict:
    """What was found.

    Attributes:
        faults: each is damage; none of them may be.
        counts: of what happened.
    """

    faults: list[str] = field(default_factory=list)
    counts: dict[str, Any] = field(default_factory=dict)


def judge(stage: Stage) -> Verdict:
    """Hold the table against the journals, when all actors have come to their end."""
    verdict = Verdict()
    operations = journals(stage.folder)
    table = stage.load()
    order = _commits(operations, verdict)
    states = _states(order)
    _check_known(table, operations, verdict)
    _check_surviving(table, order, states, verdict)
    _check_reads(table, operations, order, states, verdict)
    _check_files(table, verdict)
    verdict.counts |= _counts(table, operations)
    return verdict


# -- the rows that have to be there ------------------------------------------------------------------------------------


def _commits(operations: Iterable[Operation], verdict: Verdict) -> list[tuple[int, Operation]]:
    """Return (sequence number, operation) of all commits in their order."""
    found = [(number, operation) for operation in operations for _, number in operation.snapshots]
    for number, several in groupby(sorted(found, key=lambda one: one[0]), key=lambda one: one[0]):
        names = sorted({operation.tag for _, operation in several})
        if len(names) > 1:
            verdict.faults.append(f"{names} were all told that they are commit {number}")
    for operation in operations:
        if len({number for _, number in operation.snapshots}) > 1 and operation.kind != "compact":
            verdict.faults.append(f"{operation.tag} ({operation.kind}) landed twice: {operation.snapshots}")
        if operation.outcome is None:
            verdict.faults.append(f"{operation.tag} never came to its end: {operation.errors[-3:]}")
    return sorted(found, key=lambda one: one[0])


def _states(order: Iterable[tuple[int, Operation]]) -> dict[int, frozenset[Row]]:
    """Return the rows after each commit that changes rows; between two of them nothing changes."""
    rows: frozenset[Row] = frozenset()
    states = {0: rows}
    for number, operation in order:
        rows = effect(operation.kind, operation.arguments, operation.tag)(rows)
        states[number] = rows
    return states


def _at(states: dict[int, frozenset[Row]], sequence: int) -> frozenset[Row]:
    return states[max(number for number in states if number <= sequence)]


# -- what is there -----------------------------------------------------------------------------------------------------


def _check_known(table: Table, operations: Iterable[Operation], verdict: Verdict) -> None:
    """No snapshot is of an operation that was told anything else."""
    landed = {snapshot_id for operation in operations for snapshot_id, _ in operation.snapshots}
    for snapshot in table.snapshots():
        key = snapshot.summary.get(OPERATION_KEY)
        if key is None or snapshot.snapshot_id in landed:
            continue
        of = OperationKey.parse(key)
        verdict.faults.append(f"snapshot {snapshot.snapshot_id} of {of.run_id} {of.task_id} landed, and nobody knows")


def _check_surviving(
    table: Table, order: list[tuple[int, Operation]], states: dict[int, frozenset[Row]], verdict: Verdict
) -> None:
    """Every snapshot that the table has reads as it has to, its head above all."""
    for snapshot in table.snapshots():
        what = f"snapshot {snapshot.sequence_number}"
        try:
            found = rows_of(table, snapshot)
        except IcebergError as error:
            verdict.faults.append(f"{what} cannot be read: {error}")
            continue
        _compare(what, found, _at(states, snapshot.sequence_number), order, verdict)
    head = table.current_snapshot()
    last = max((number for number, _ in order), default=0)
    if (0 if head is None else head.sequence_number) < last:
        verdict.faults.append(f"the table's head is before commit {last}, which somebody was told to have landed")


def _check_reads(
    table: Table,
    operations: Iterable[Operation],
    order: list[tuple[int, Operation]],
    states: dict[int, frozenset[Row]],
    verdict: Verdict,
) -> None:
    """Whoever read while the others were at work saw one state of the table, and each row kept its id."""
    ids: dict[Row, int] = {}
    for name, sequence, rows in _reads(table, operations):
        _compare(f"what {name} read of snapshot {sequence}", rows, _at(states, sequence), order, verdict)
        for row in rows:
            if len(row) > 4:
                plain, row_id = Row(*row[:4]), row[4]
                if ids.setdefault(plain, row_id) != row_id:
                    verdict.faults.append(f"{plain} had row id {ids[plain]}, and {row_id} in snapshot {sequence}")


def _reads(table: Table, operations: Iterable[Operation]) -> Iterator[tuple[str, int, list[list[Any]]]]:
    for operation in operations:
        for note in operation.notes if operation.kind == "read" else ():
            yield operation.tag, note["sequence"], note["rows"]
    head = table.current_snapshot()
    if head is not None:
        with suppress(IcebergError):
            yield "the judge", head.sequence_number, rows_of(table, head)


def _compare(
    what: str,
    found: Iterable[list[Any]],
    wanted: frozenset[Row],
    order: list[tuple[int, Operation]],
    verdict: Verdict,
) -> None:
    found = list(found)
    counted = Counter(Row(*row[:4]) for row in found)
    for title, rows in (
        ("lost", wanted - counted.keys()),
        ("too many", counted.keys() - wanted),
        ("doubled", {row for row, count in counted.items() if count > 1}),
    ):
        if rows:
            verdict.faults.append(f"{what}: {len(rows)} rows {title}, such as {sorted(rows)[:3]}")
    lineage = [row for row in found if len(row) > 4]
    if len({row[4] for row in lineage}) != len(lineage):
        verdict.faults.append(f"{what}: two rows have one row id")
    born = {operation.tag: number for number, operation in order}
    wrong = [row for row in lineage if row[5] != born.get(row[2])]
    if wrong:
        verdict.faults.append(
            f"{what}: {len(wrong)} rows were last changed by another commit than theirs: {wrong[0]}, "
            f"expected {born.get(wrong[0][2])}"
        )


# -- the files ---------------------------------------------------------------------------------------------------------


def _check_files(table: Table, verdict: Verdict) -> None:
    """Every file that the table leads to is there; what was put aside was none; in the end nothing else is left."""
    root = f"{table.location.rstrip('/')}/"
    known = known_files(table)
    there = {status.location for status in table.io.list(root)}
    live = reachable(table) | {table.metadata_location}
    if missing := sorted(live - there):
        verdict.faults.append(f"{len(missing)} files are missing, such as {missing[0]}")
        return
    aside = [path for path in there if "/.quarantine/" in path and "/files/" in path]
    for path in aside:
        original = root + path.partition("/files/")[2]
        if known.classify(original) != "orphan":
            verdict.faults.append(f"{original} is the table's, and lies in a quarantine")
    later = now_ms() + DAY_MS
    for purge in (None, later):
        request = RemoveOrphanFilesRequest(
            action="delete", older_than_ms=later, allow_recent=True, purge_older_than_ms=purge
        )
        remove_orphan_files(Work(table), request)
    for snapshot in table.refresh().snapshots():
        rows_of(table, snapshot)
    left = {status.location for status in table.io.list(root)}
    known = known_files(table)
    surplus = sorted(path for path in left if known.classify(path) == "orphan")
    if surplus:
        verdict.faults.append(f"{len(surplus)} files are left over after all was cleaned, such as {surplus[0]}")
    verdict.counts["files put aside or left at the end"] = len(aside)
    verdict.counts["quarantines left"] = len(quarantines(table))


# -- what happened -----------------------------------------------------------------------------------------------------


def _counts(table: Table, operations: list[Operation]) -> dict[str, Any]:
    kinds: dict[str, Counter[str]] = {}
    for operation in operations:
        counted = kinds.setdefault(operation.kind, Counter())
        counted[operation.outcome or "never"] += 1
        counted["tried again"] += max(0, operation.tries - 1)
        counted.update(operation.errors)
        for note in operation.notes:
            counted.update({name: note[name] for name in ("expired", "files", "orphans", "staging") if name in note})
    return {
        "operations": {kind: dict(counted) for kind, counted in sorted(kinds.items())},
        "commits": sum(len(operation.snapshots) for operation in operations),
        "snapshots": len(table.snapshots()),
        "rows": table.scan().count(),
    }


def write(verdict: Verdict, folder: Path) -> None:
    (folder / "verdict.json").write_text(json.dumps({"faults": verdict.faults, **verdict.counts}, indent=1))
