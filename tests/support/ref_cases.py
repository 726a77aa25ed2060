"""Generated cases of changes of branches and tags: a history that Java makes, and what is done to copies of it.

A history has appends, deletes, static and dynamic overwrites, branches, tags, commits that are staged with a `wap.id`,
and rollbacks, chosen by a seed. A case is one change, in the words of Java and in ours. Not here: who runs and compares
them (`compat.test_same_refs_as_java`).
"""

import random
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.snapshots import Snapshot
from airflow_iceberg.table import Table

TABLE = "{table}"
DYNAMIC = {"spark.sql.sources.partitionOverwriteMode": "dynamic"}
Statement = tuple[str, dict[str, str]]
# What says who wrote, how, and with which version.
OF_THE_WRITER = ("airflow.", "app-id", "engine-", "iceberg-version", "spark.app.id", "manifests-")


@dataclass(frozen=True)
class Case:
    """One change.

    Attributes:
        java: the statement, with `{table}` for the name of the table.
        ours: the same.
        is_idempotent: whether ours is no error where Java's is, if the ref is as it is to be.
        is_stricter: whether ours is an error where Java does nothing: a ref of the other kind has the name.
    """

    name: str
    java: str
    ours: Callable[[Table], Any]
    is_idempotent: bool = False
    is_stricter: bool = False


def history(seed: int, version: int) -> Iterator[Statement]:
    """Yield the statements of Java that make a table, each with the settings of its session."""
    chosen = random.Random(seed * 10 + version)
    mode = chosen.choice(["copy-on-write", "merge-on-read"]) if version > 1 else "copy-on-write"
    properties = {
        "format-version": str(version),
        "write.delete.mode": mode,
        "write.update.mode": mode,
        "write.wap.enabled": "true",
    }
    listed = ", ".join(f"'{key}'='{value}'" for key, value in properties.items())
    yield (
        f"create table {TABLE} (id bigint, part string) using iceberg partitioned by (part) tblproperties ({listed})",
        {},
    )
    number = 0

    def rows(count: int = 2) -> str:
        nonlocal number
        made = []
        for _ in range(count):
            number += 1
            made.append(f"({number}, '{chosen.choice('abc')}')")
        return ", ".join(made)

    yield f"insert into {TABLE} values {rows()}, (100, 'a')", {}
    yield f"alter table {TABLE} create tag t1", {}
    yield f"insert into {TABLE} values {rows()}", {}
    yield f"alter table {TABLE} create branch audit", {}
    yield f"alter table {TABLE} create branch dyn retain 5 days with snapshot retention 3 snapshots", {}
    yield f"insert into {TABLE}.branch_audit values {rows()}", {}
    yield f"insert overwrite {TABLE}.branch_dyn values {rows(1)}", DYNAMIC
    if chosen.random() < 0.5:
        yield f"insert into {TABLE}.branch_audit values {rows()}", {}
    yield f"insert into {TABLE} values {rows()}", {"spark.wap.id": "w1"}
    yield f"insert overwrite {TABLE} values (50, 'a')", {"spark.wap.id": "w2", **DYNAMIC}
    if chosen.random() < 0.7:
        yield f"insert into {TABLE} values ({number + 60}, '{chosen.choice('bc')}')", {}
    if chosen.random() < 0.5:
        yield f"delete from {TABLE} where id = 100", {}
    if chosen.random() < 0.5:
        yield f"update {TABLE} set id = 101 where id = 1", {}
    if chosen.random() < 0.4:
        yield f"call ref.system.cherrypick_snapshot('{TABLE}', {{staged w1}})", {}
    yield f"delete from {TABLE} where id = 2", {"spark.wap.id": "w3"}
    yield f"insert into {TABLE} values {rows(1)}", {"spark.wap.id": "w4"}
    if chosen.random() < 0.3:
        yield f"insert into {TABLE} values {rows(1)}", {"spark.wap.id": "w4"}
    if chosen.random() < 0.4:
        yield f"call ref.system.set_current_snapshot(table => '{TABLE}', ref => 't1')", {}
        if chosen.random() < 0.5:
            yield f"insert into {TABLE} values {rows(1)}", {}


def cases(metadata: TableMetadata) -> Iterator[Case]:
    """Yield changes of a table with such a history: of every snapshot, time and ref, and of some that it has not."""
    yield from _moves(metadata)
    yield from _forward(metadata)
    yield from _ddl(metadata, "branch")
    yield from _ddl(metadata, "tag")


def _call(procedure: str, *arguments: object) -> str:
    texts = ", ".join(f"'{one}'" if isinstance(one, str) else str(one) for one in arguments)
    return f"call ref.system.{procedure}('{TABLE}', {texts})"


def _moves(metadata: TableMetadata) -> Iterator[Case]:
    ids = [snapshot.snapshot_id for snapshot in metadata.snapshots]
    for number, one in enumerate([*ids, 17]):
        for procedure, method in (
            ("rollback_to_snapshot", "rollback_to_snapshot"),
            ("set_current_snapshot", "set_current_snapshot"),
            ("cherrypick_snapshot", "cherry_pick"),
        ):
            yield Case(
                f"{method}_{number}",
                _call(procedure, one),
                lambda table, method=method, one=one: getattr(table, method)(one),
            )
    for number, snapshot in enumerate(metadata.snapshots):
        moment = snapshot.timestamp_ms + number % 2
        text = datetime.fromtimestamp(moment / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
        java = f"call ref.system.rollback_to_timestamp('{TABLE}', timestamp '{text}')"
        yield Case(f"to_time_{number}", java, lambda table, moment=moment: table.rollback_to_timestamp(moment))
    for wap_id in ("w1", "w2", "w3", "w4", "w9"):
        yield Case(
            f"publish_{wap_id}",
            _call("publish_changes", wap_id),
            lambda table, wap_id=wap_id: table.publish_changes(wap_id),
        )


def _forward(metadata: TableMetadata) -> Iterator[Case]:
    refs = [*sorted(metadata.refs), "none"]
    for branch in refs:
        for to in refs:
            if branch != to or branch == "none":
                yield Case(
                    f"forward_{branch}_{to}",
                    _call("fast_forward", branch, to),
                    lambda table, branch=branch, to=to: table.fast_forward(branch, to),
                )
    for ref in refs:
        java = f"call ref.system.set_current_snapshot(table => '{TABLE}', ref => '{ref}')"
        yield Case(f"current_{ref}", java, lambda table, ref=ref: table.set_current_snapshot(ref=ref))


def _ddl(metadata: TableMetadata, kind: str) -> Iterator[Case]:
    first, last = metadata.snapshots[0].snapshot_id, metadata.snapshots[-1].snapshot_id
    ages = {"max_ref_age_ms": 2 * 86_400_000}
    kept = {**ages, "max_snapshot_age_ms": 3_600_000, "min_snapshots_to_keep": 4}
    retain = "retain 2 days" + (" with snapshot retention 4 snapshots 1 hours" if kind == "branch" else "")
    for name in ("audit", "t1", "new", "main"):
        for number, (words, suffix, options) in enumerate(
            (
                ("create {kind}", "", {}),
                ("create {kind}", f" as of version {first}", {"snapshot_id": first}),
                ("create {kind} if not exists", f" as of version {last}", {"snapshot_id": last, "if_not_exists": True}),
                ("create or replace {kind}", f" as of version {last}", {"snapshot_id": last, "replace_existing": True}),
                (
                    "create or replace {kind}",
                    f" as of version {first} {retain}",
                    {"snapshot_id": first, "replace_existing": True, **(kept if kind == "branch" else ages)},
                ),
            )
        ):
            yield Case(
                f"{kind}_{name}_{number}",
                f"alter table {TABLE} {words.format(kind=kind)} `{name}`{suffix}",
                lambda table, name=name, options=options: getattr(table, f"create_{kind}")(name, **options),
                is_idempotent=True,
                is_stricter="if_not_exists" in options and name in metadata.refs and metadata.refs[name].type != kind,
            )
        for if_exists in (False, True):
            yield Case(
                f"drop_{kind}_{name}_{if_exists}",
                f"alter table {TABLE} drop {kind} {'if exists ' if if_exists else ''}`{name}`",
                lambda table, name=name, e=if_exists: getattr(table, f"remove_{kind}")(name, if_exists=e),
            )


def shape(table: Table, known: Collection[int]) -> dict[str, Any]:
    """Return what a table is, without what is random: ids of new snapshots are numbers in their order."""
    metadata = table.metadata
    new = {s.snapshot_id: f"new {n}" for n, s in enumerate(s for s in metadata.snapshots if s.snapshot_id not in known)}

    def named(snapshot_id: int | None) -> int | str | None:
        if snapshot_id is None:
            return None
        return new.get(snapshot_id, snapshot_id)

    def summary(snapshot: Snapshot) -> dict[str, str]:
        entries = snapshot.summary.items()
        return {key: value for key, value in entries if not key.startswith(OF_THE_WRITER)}

    return {
        "refs": {name: {**ref.to_dict(), "snapshot-id": named(ref.snapshot_id)} for name, ref in metadata.refs.items()},
        "snapshots": [
            (named(s.snapshot_id), named(s.parent_snapshot_id), s.sequence_number, summary(s))
            for s in metadata.snapshots
        ],
        "current": named(metadata.current_snapshot_id),
        "log": [named(snapshot_id) for _, snapshot_id in metadata.snapshot_log],
        "last-sequence-number": metadata.last_sequence_number,
    }
