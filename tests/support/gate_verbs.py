"""What can be done with a table: each public verb of tables, catalogs and operators, for the tests of the gate.

`OPERATIONS` does it, to a table that an attacker has forged or linked. `TRIED` says which operation has which verb, and
`HARMLESS` why the others have none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from airflow_iceberg.catalogs.glue.catalog import GlueCatalog
from airflow_iceberg.catalogs.hadoop.catalog import HadoopCatalog
from airflow_iceberg.catalogs.hive.catalog import HiveCatalog
from airflow_iceberg.catalogs.nessie.catalog import NessieCatalog
from airflow_iceberg.catalogs.rest.catalog import RestCatalog
from airflow_iceberg.catalogs.sql.catalog import SqlCatalog
from airflow_iceberg.errors import IcebergError
from airflow_iceberg.format.metadata.updates import Change, SetProperties, SetStatistics
from airflow_iceberg.jobs.protocol.source import Source
from airflow_iceberg.operations.append import AppendRequest, append
from airflow_iceberg.operations.compact import CompactRequest, compact
from airflow_iceberg.operations.expire_snapshots import ExpireSnapshotsRequest, expire_snapshots
from airflow_iceberg.operations.inputs.tables import Input
from airflow_iceberg.operations.quarantine import quarantines, restore_quarantine
from airflow_iceberg.operations.remove_orphan_files import RemoveOrphanFilesRequest, remove_orphan_files
from airflow_iceberg.operations.rewrite_manifests import RewriteManifestsRequest, rewrite_manifests
from airflow_iceberg.operations.wap.audit import AuditRequest, audit
from airflow_iceberg.operations.wap.audits import NoRows, RowCount
from airflow_iceberg.operations.wap.branch import clean_up, start_branch
from airflow_iceberg.operations.wap.publish import PublishRequest, publish
from airflow_iceberg.operations.work import Work
from airflow_iceberg.scan.metadata_tables import Inspection
from airflow_iceberg.scan.table_scan import TableScan
from airflow_iceberg.table import Table
from airflow_iceberg.ui.views import facts_of, health_of
from tests.support.builders import job_work

ROWS = pa.table({"id": pa.array([1, 2], pa.int64()), "day": ["a", "b"]})


@dataclass(frozen=True)
class Spot:
    """A folder where an attacker likes others to look.

    Attributes:
        location: the folder, which has `data` and `metadata` in it; in any spelling.
        names: the files in it, by their paths from there.
    """

    location: str
    names: tuple[str, ...] = ()

    def files(self, folder: str) -> list[str]:
        return [f"{self.location}/{name}" for name in self.names if name.startswith(f"{folder}/")]


Operation = Callable[[Table, Spot], Any]


# What `each_of` was refused, for who wants to see that not all of it was.
refused: list[str] = []


def each_of(*uses: Callable[[], Any]) -> int:
    """Do all of it; what is refused keeps nothing else from being done. Return how much was done."""
    done = 0
    for use in uses:
        try:
            use()
            done += 1
        except IcebergError as error:
            refused.append(f"{type(error).__name__}: {error}")
    return done


def methods_of(owner: type) -> list[str]:
    return [name for name in dir(owner) if not name.startswith("_") and callable(getattr(owner, name))]


# -- cleaning up -------------------------------------------------------------------------------------------------------


def expire(table: Table) -> Any:
    return expire_snapshots(Work(table), ExpireSnapshotsRequest(older_than_ms=2**62))


def remove_orphans(table: Table, action: str = "delete", location: str | None = None) -> None:
    request = RemoveOrphanFilesRequest(
        action=action, older_than_ms=2**62, allow_recent=True, purge_older_than_ms=2**62, location=location
    )
    remove_orphan_files(Work(table), request)


def quarantine(table: Table) -> None:
    remove_orphans(table, "quarantine")
    for name in quarantines(table):
        restore_quarantine(Work(table), name)


def _remove_in_parts(table: Table, spot: Spot) -> None:
    there = spot.location
    for location in (f"{table.location.rstrip('/')}/data", there, f"{there}/data", f"{there}/data/day=a"):
        each_of(lambda: remove_orphans(table.refresh(), location=location))  # noqa: B023 - it is done at once


# -- looking -----------------------------------------------------------------------------------------------------------


def _inspect(table: Table, spot: Spot) -> None:
    inspected = table.inspect
    for name in methods_of(Inspection):
        wanted = name in ("added_rows", "touched_partitions")
        numbers = (table.metadata.snapshots[-1].snapshot_id,) if wanted else ()
        each_of(lambda: getattr(inspected, name)(*numbers))  # noqa: B023 - it is done at once


def _look(table: Table, spot: Spot) -> None:
    """What a sensor and a page look at."""
    facts_of(table), health_of(table)
    each_of(lambda: table.inspect.partition_counts())


def _scan(table: Table, spot: Spot) -> None:
    scan = table.scan()
    each_of(scan.to_arrow, scan.count, scan.plan_files, lambda: [*scan.iter_files()])
    each_of(lambda: scan.to_arrow_batch_reader().read_all())
    scan.to_arrow()


def _changes(table: Table, spot: Spot) -> None:
    first = table.metadata.snapshots[0].snapshot_id
    each_of(
        lambda: table.incremental_append_scan(first).to_arrow(),
        lambda: table.changes(first).read_all(),
        lambda: table.changes(first, mode="changelog").read_all(),
    )


def _from_metadata(table: Table, spot: Spot) -> None:
    Table.from_metadata(table.metadata_location).scan().to_arrow()


def _names(table: Table, spot: Spot) -> None:
    """All that catalogs are asked about names, and how they are changed."""
    catalog, name = table.catalog, table.identifier
    space = name.namespace
    each_of(
        lambda: catalog.list_namespaces(),
        lambda: catalog.list_namespaces(space),
        lambda: catalog.list_tables(space),
        lambda: [*catalog.some_names(space)],
        lambda: catalog.namespace_exists(space),
        lambda: catalog.load_namespace_properties(space),
        lambda: catalog.update_namespace_properties(space, {"owner": "a"}),
        lambda: catalog.table_exists(name),
        lambda: catalog.kind_of_name(name),
        lambda: catalog.why_missing(name),
        lambda: catalog.default_location("db.new"),
        lambda: catalog.new_location("db.new"),
        lambda: catalog.create_namespace("more"),
        lambda: catalog.create_namespace((*space, name.name, "day=a")),
        lambda: catalog.drop_namespace("more"),
        lambda: catalog.reload(catalog.load(name)),
        lambda: catalog.commit(catalog.load(name), Change(updates=(SetProperties(updates={"a": "c"}),))),
        lambda: catalog.commit_together([(catalog.load(name), Change(updates=(SetProperties(updates={"a": "d"}),)))]),
        lambda: catalog.rename_table(name, "db.renamed"),
    )


# -- changing ----------------------------------------------------------------------------------------------------------


def _query(table: Table, spot: Spot) -> None:
    rows = Source.from_sql("select * from other", dialect="duckdb")
    other = Input(open=lambda: Table.load(table.catalog, table.identifier))
    append(job_work(table), AppendRequest(rows=rows, inputs={"other": other}))


def _change_refs(table: Table, spot: Spot) -> None:
    first, last = (table.metadata.snapshots[number].snapshot_id for number in (0, -1))
    each_of(
        lambda: table.create_branch("b", first),
        lambda: table.create_tag("v", first),
        lambda: table.fast_forward("b", "main"),
        lambda: table.set_current_snapshot(first),
        lambda: table.rollback_to_timestamp(table.metadata.snapshots[1].timestamp_ms),
        lambda: table.staged_snapshot("w"),
        lambda: table.publish_changes("w"),
        lambda: table.manage_snapshots().create_tag(last, "w").commit(),
        lambda: table.remove_tag("v"),
        lambda: table.remove_branch("b"),
    )


def _audit(table: Table, spot: Spot) -> None:
    found = audit(
        job_work(table),
        AuditRequest(audits=[RowCount(min=1), NoRows("select * from audited where id < 0")], branch="audit"),
    )
    publish(Work(table), PublishRequest(snapshot_id=found.snapshot_id or 0, branch="audit"))
    start_branch(Work(table.refresh()), "wap")
    clean_up(Work(table.refresh()), "wap", table.metadata.refs["wap"].snapshot_id)


def _set_statistics(table: Table, spot: Spot) -> None:
    """Commit a statistics file of a snapshot, and expire the snapshot with it."""
    number = table.metadata.snapshots[0].snapshot_id
    for path in (*spot.files("data")[:1], *spot.files("metadata")[-3:]):
        found = {"snapshot-id": number, "statistics-path": path, "file-size-in-bytes": 9}
        found |= {"file-footer-size-in-bytes": 5, "blob-metadata": []}
        change = Change(updates=(SetStatistics(snapshot_id=number, statistics=found),))
        each_of(lambda: table.catalog.commit(table.catalog.load(table.identifier), change))  # noqa: B023
    expire(table.refresh())


def _take(table: Table, source: str, files: Iterable[str] = ()) -> None:
    """Take over the files of a folder in each way, and clean up what has become of them."""
    catalog = table.catalog
    each_of(
        lambda: table.add_files([*files]),
        lambda: table.add_files(source=source),
        lambda: table.add_files(source=source, check_duplicate_files=False, rewrite_unfit=True),
    )
    for make, name in ((Table.snapshot_table, "db.copy"), (Table.migrate_table, "db.moved")):
        each_of(lambda: make(catalog, name, source))  # noqa: B023 - it is done at once
        with suppress(IcebergError):
            made = Table.load(catalog, name)
            each_of(lambda: made.scan().to_arrow(), lambda: made.delete("id > 0"))  # noqa: B023
            each_of(lambda: expire(made), lambda: remove_orphans(made))  # noqa: B023
            catalog.drop_table(name, purge=True)


def _take_own(table: Table, spot: Spot) -> None:
    _take(table, f"{table.location.rstrip('/')}/data")
    each_of(lambda: Table.register(table.catalog, "db.known", table.metadata_location))


def _take_place(table: Table, spot: Spot) -> None:
    _take(table, f"{spot.location}/data", spot.files("data"))
    for path in [path for path in spot.files("metadata") if path.endswith(".metadata.json")][-1:]:
        with suppress(IcebergError):
            Table.register(table.catalog, "db.known", path).scan().to_arrow()


def _create(table: Table, spot: Spot) -> None:
    for location in (None, spot.location, f"{spot.location}/new", f"{spot.location}/data/day=a/new"):
        with suppress(IcebergError):
            made = Table.create(table.catalog, "db.new", schema={"id": "long", "day": "string"}, location=location)
            each_of(lambda: made.append(ROWS), lambda: remove_orphans(made))  # noqa: B023
            table.catalog.drop_table("db.new", purge=True)


OPERATIONS: dict[str, Operation] = {
    "scan": _scan,
    "old scan": lambda table, _: table.scan(snapshot_id=table.metadata.snapshots[0].snapshot_id).to_arrow(),
    "changes": _changes,
    "inspect": _inspect,
    "look": _look,
    "runs": lambda table, _: table.runs(),
    "from metadata": _from_metadata,
    "names": _names,
    "create": _create,
    "append": lambda table, _: table.append(ROWS),
    "query": _query,
    "overwrite": lambda table, _: table.overwrite(ROWS),
    "dynamic overwrite": lambda table, _: table.dynamic_partition_overwrite(ROWS),
    "delete": lambda table, _: table.delete("id = 1"),
    "update": lambda table, _: table.update({"id": "id + 20"}, where="id = 2"),
    "merge": lambda table, _: table.merge(ROWS, ["id"], "when matched then delete when not matched then insert *"),
    "upsert": lambda table, _: table.upsert(ROWS, ["id"]),
    "compact": lambda table, _: compact(job_work(table), CompactRequest(options={"rewrite-all": "true"})),
    "rewrite manifests": lambda table, _: rewrite_manifests(Work(table), RewriteManifestsRequest()),
    "expire": lambda table, _: expire(table),
    "dry expire": lambda table, _: expire_snapshots(
        Work(table), ExpireSnapshotsRequest(older_than_ms=2**62, dry_run=True)
    ),
    "orphans": lambda table, _: remove_orphans(table),
    "orphans in parts": _remove_in_parts,
    "dry orphans": lambda table, _: remove_orphans(table, "dry_run"),
    "quarantine": lambda table, _: quarantine(table),
    "undo": lambda table, _: table.undo(dag_id="dag", run_id="run"),
    "rollback": lambda table, _: table.rollback_to_snapshot(table.metadata.snapshots[0].snapshot_id),
    "publish": lambda table, _: table.cherry_pick(table.metadata.refs["audit"].snapshot_id),
    "audit": _audit,
    "refs": _change_refs,
    "alter": lambda table, _: table.alter([{"set_properties": {"a": "b"}}]),
    "set statistics": _set_statistics,
    "take own": _take_own,
    "take place": _take_place,
    "purge": lambda table, _: table.catalog.drop_table(table.identifier, purge=True),
    "drop": lambda table, _: table.catalog.drop_table(table.identifier),
}
# After these a file that was live may be gone, or one of an old snapshot.
ENDS = ("purge", "drop")
EXPIRES = ("expire", "set statistics")
# These look at the spot, whatever the metadata says.
SPOTTED = ("take place", "create", "set statistics", "orphans in parts")


# -- which verbs there are ---------------------------------------------------------------------------------------------

CLASSES: Mapping[str, tuple[type, ...]] = {
    "Table": (Table,),
    "Inspection": (Inspection,),
    "TableScan": (TableScan,),
    "Catalog": (HadoopCatalog, SqlCatalog, RestCatalog, GlueCatalog, NessieCatalog, HiveCatalog),
}


def public_verbs() -> dict[str, tuple[type, ...]]:
    """Return the names of public methods and properties, "Table.scan", each with the classes that have it."""
    found: dict[str, tuple[type, ...]] = {}
    for kind, classes in CLASSES.items():
        for owner in classes:
            values = [name for name in dir(owner) if name[0] != "_" and isinstance(getattr(owner, name), property)]
            for name in (*methods_of(owner), *values):
                found[f"{kind}.{name}"] = (*found.get(f"{kind}.{name}", ()), owner)
    return found


def _by_operation(kind: str, **verbs: str) -> dict[str, str]:
    """Return the operation of each verb; a keyword is an operation, with "_" for blanks."""
    return {f"{kind}.{verb}": name.replace("_", " ") for name, listed in verbs.items() for verb in listed.split()}


TRIED: Mapping[str, str] = {
    **_by_operation(
        "Table",
        scan="scan load io",
        orphans="refresh",
        changes="changes incremental_append_scan",
        inspect="inspect",
        runs="runs",
        from_metadata="from_metadata",
        create="create",
        append="append land",
        overwrite="overwrite",
        dynamic_overwrite="dynamic_partition_overwrite",
        delete="delete",
        update="update",
        merge="merge",
        upsert="upsert",
        expire="deleting_io change",
        undo="undo",
        rollback="rollback_to_snapshot",
        publish="cherry_pick",
        refs="create_branch create_tag remove_branch remove_tag fast_forward set_current_snapshot manage_snapshots "
        "rollback_to_timestamp publish_changes staged_snapshot",
        alter="alter",
        take_own="register",
        take_place="add_files snapshot_table migrate_table",
    ),
    **_by_operation("Inspection", inspect=" ".join(methods_of(Inspection))),
    **_by_operation("TableScan", scan="of to_arrow count plan_files iter_files to_arrow_batch_reader"),
    **_by_operation(
        "Catalog",
        scan="load gate trust_in read_pointer read_metadata gate_of_pointer",
        names="list_namespaces list_tables some_names namespace_exists load_namespace_properties create_namespace "
        "update_namespace_properties table_exists kind_of_name why_missing default_location new_location "
        "drop_namespace reload rename_table commit_together check_new_namespace",
        append="commit attempts swap_pointer swap_metadata",
        create="create check_place check_new_name gate_of_place",
        expire="deleting_io doubt is_past",
        take_own="register_table check_registered",
        purge="drop_table find_purgeable drop_if_current",
        drop="drop_pointer",
    ),
}

# Public, and neither reads nor deletes by itself what metadata names; or it does nothing but what a tried verb does.
_REASONS: Mapping[str, str] = {
    "a value that is known": "Table.identifier Table.name Table.catalog Table.metadata Table.metadata_location "
    "Table.location Table.properties Table.refs Table.schema Table.spec Table.sort_order Table.current_snapshot "
    "Table.snapshots Table.state Table.newest_metadata Table.is_rewound Table.check_branch Table.commit_settings",
    "shows the table as it was, and opens nothing": "Table.rewind Table.new_branch",
    "what `land` does": "Table.commit",
    "the server of a REST catalog commits to several tables, and touches their files itself": "Catalog.commit_tables",
    "entries of a metastore alone; `take place` reads folders, and tests of Hive the tables": "Catalog.existing_table "
    "Catalog.has_entry Catalog.is_set_aside Catalog.set_aside Catalog.put_back Catalog.keep_aside Catalog.drop_aside",
    "about names alone": "Catalog.id_of Catalog.levels_of Catalog.namespace_of Catalog.not_a_table Catalog.missing "
    "Catalog.check_held",
    "looks for a name, and creates a namespace as the tried verb does": "Catalog.ensure_namespace",
    "the pointers in a list, of which none is followed": "Catalog.other_pointers Catalog.told_location",
    "a setting of the object": "Catalog.remember_states Catalog.limit_reads Catalog.io",
}
HARMLESS: Mapping[str, str] = {verb: why for why, verbs in _REASONS.items() for verb in verbs.split()}

OPERATORS: Mapping[str, str] = {
    "IcebergAddFilesOperator": "take place",
    "IcebergAlterTableOperator": "alter",
    "IcebergAppendOperator": "query",
    "IcebergAuditOperator": "audit",
    "IcebergBranchOperator": "refs",
    "IcebergCherryPickOperator": "publish",
    "IcebergCompactOperator": "compact",
    "IcebergCreateTableOperator": "create",
    "IcebergDeleteOperator": "delete",
    "IcebergExpireSnapshotsOperator": "expire",
    "IcebergFastForwardOperator": "refs",
    "IcebergMergeOperator": "merge",
    "IcebergMigrateTableOperator": "take place",
    "IcebergOverwriteOperator": "overwrite",
    "IcebergPublishChangesOperator": "refs",
    "IcebergPublishOperator": "audit",
    "IcebergRegisterTableOperator": "take own",
    "IcebergRemoveOrphanFilesOperator": "orphans",
    "IcebergRestoreOrphanFilesOperator": "quarantine",
    "IcebergRewriteManifestsOperator": "rewrite manifests",
    "IcebergRollbackOperator": "rollback",
    "IcebergSetCurrentSnapshotOperator": "refs",
    "IcebergSnapshotTableOperator": "take place",
    "IcebergTagOperator": "refs",
    "IcebergUndoOperator": "undo",
    "IcebergUpdateOperator": "update",
    "iceberg_wap": "audit",
}
