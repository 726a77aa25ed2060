"""A local warehouse with the tables `db.t` and `db.victim` in any catalog, and an attacker who links and respells.

The folder `foreign` beside the warehouse has the same names and files, so that each path that leads there is found.
"""

import os
import shutil
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.catalogs.base import TableId
from airflow_iceberg.commit.operation_key import OperationKey
from airflow_iceberg.errors import IcebergError
from airflow_iceberg.format.metadata import json as metadata_json
from airflow_iceberg.inventory.manifests import read_entries, read_manifests
from airflow_iceberg.operations.compact import CompactRequest, compact
from airflow_iceberg.operations.expire_snapshots import ExpireSnapshotsRequest, expire_snapshots
from airflow_iceberg.operations.quarantine import quarantines, restore_quarantine
from airflow_iceberg.operations.remove_orphan_files import RemoveOrphanFilesRequest, remove_orphan_files
from airflow_iceberg.operations.rewrite_manifests import RewriteManifestsRequest, rewrite_manifests
from airflow_iceberg.operations.work import Work
from airflow_iceberg.storage import load_file_io
from airflow_iceberg.table import Table
from airflow_iceberg.ui.views import facts_of, health_of
from tests.support.builders import age, job_work, reachable
from tests.support.kernel_watch import KernelWatch
from tests.support.local_calls import LocalCalls, content
from tests.support.memory import MemoryCatalog
from tests.support.recording import commit_foreign_file, forged
from tests.support.rest_stand_in import RestStandIn

KEY = OperationKey(dag_id="dag", run_id="run", task_id="task")
ROWS = pa.table({"id": pa.array([1, 2], pa.int64()), "day": ["a", "b"]})
PROPERTIES = {
    "format-version": "2",
    "gc.enabled": "true",
    "write.delete.mode": "merge-on-read",
    "commit.retry.num-retries": "1",
    "commit.retry.min-wait-ms": "1",
    "commit.status-check.num-retries": "1",
    "commit.status-check.min-wait-ms": "1",
    "commit.status-check.max-wait-ms": "1",
}

# How a folder is spelled, from the folder that holds it, its links and its real name.
SPELLINGS = (
    "{}",
    "file:{}",
    "file://{}",
    "FILE://{}",
    "file://localhost{}",
    "FILE://LOCALHOST{}",
    "{}/",
    "{}//",
    "{}/.",
    "/.{}",
    "//{}",
    "file://{}/./",
    "{}/x/..",
    "{}/../t",
    "{}/%2e%2e/t",
    "{}/%2e",
    "file://{}/%2e%2e/%2e%2e/db/t",
    "{}/data/../../t",
)
THROUGH = ("warehouse", "lake", "outer/warehouse")
LINKED = (
    "namespace", "table", "metadata", "data", "data/day=a", ".staging", ".quarantine", "current metadata",
    "a manifest", "a data file",
)  # fmt: skip
FORGED = (
    "location", "write.data.path", "write.metadata.path", "write.object-storage.path", "write.folder-storage.path",
    "manifest list", "data file", "statistics", "metadata log",
)  # fmt: skip
# Where a forged location leads: the foreign folder, a link to it below the table, the table's own folder, and a link
# below the table to its own folder; the other table's folder, and a folder outside with links into the middle of it.
TARGETS = ("foreign", "a link to foreign", "own", "a link to own", "victim", "links into victim")


@dataclass(frozen=True)
class Attack:
    """What an attacker does; see the lists above.

    Attributes:
        linked: what becomes a link to its namesake in the foreign folder; None for nothing.
        forged: what metadata says anew; None for nothing.
        target, spelling, through: where to, and how that is written.
    """

    linked: str | None = None
    forged: str | None = None
    target: str = "own"
    spelling: str = "{}"
    through: str = "warehouse"

    @property
    def is_honest(self) -> bool:
        """Whether the metadata still leads to the same files, so that all of them are in use."""
        return self.linked is None and (self.forged is None or self.target in ("own", "a link to own"))


# -- what is done with the table ---------------------------------------------------------------------------------------


def remove_orphans(table: Table, action: str = "delete") -> None:
    request = RemoveOrphanFilesRequest(action=action, older_than_ms=2**62, allow_recent=True, purge_older_than_ms=2**62)
    remove_orphan_files(Work(table), request)


def quarantine(table: Table) -> None:
    remove_orphans(table, "quarantine")
    for name in quarantines(table):
        restore_quarantine(Work(table), name)


def _inspect(table: Table) -> None:
    for name in ("manifests", "all_manifests", "files", "all_files", "entries", "all_entries", "partitions"):
        with suppress(IcebergError):
            getattr(table.inspect, name)()


def _statistics(table: Table) -> None:
    """What a sensor and a page look at."""
    facts_of(table), health_of(table)
    with suppress(IcebergError):
        table.inspect.partition_counts()


def _take(table: Table) -> None:
    """Take over the files of the table's own folder, in each way."""
    source = f"{table.location.rstrip('/')}/data"
    for take in (
        lambda: table.add_files(source=source),
        lambda: Table.snapshot_table(table.catalog, "db.copy", source),
        lambda: Table.migrate_table(table.catalog, "db.moved", source),
        lambda: Table.register(table.catalog, "db.known", table.metadata_location),
    ):
        with suppress(IcebergError):
            take()


OPERATIONS: dict[str, Callable[[Table], Any]] = {
    "scan": lambda table: table.scan().to_arrow(),
    "old scan": lambda table: table.scan(snapshot_id=table.metadata.snapshots[0].snapshot_id).to_arrow(),
    "inspect": _inspect,
    "look": _statistics,
    "append": lambda table: table.append(ROWS),
    "overwrite": lambda table: table.overwrite(ROWS),
    "delete": lambda table: table.delete("id = 1"),
    "upsert": lambda table: table.upsert(ROWS, ["id"]),
    "compact": lambda table: compact(job_work(table), CompactRequest(options={"rewrite-all": "true"})),
    "rewrite manifests": lambda table: rewrite_manifests(Work(table), RewriteManifestsRequest()),
    "expire": lambda table: expire_snapshots(Work(table), ExpireSnapshotsRequest(older_than_ms=2**62)),
    "dry expire": lambda table: expire_snapshots(
        Work(table), ExpireSnapshotsRequest(older_than_ms=2**62, dry_run=True)
    ),
    "orphans": remove_orphans,
    "dry orphans": lambda table: remove_orphans(table, "dry_run"),
    "quarantine": quarantine,
    "undo": lambda table: table.undo(dag_id="dag", run_id="run"),
    "rollback": lambda table: table.rollback_to_snapshot(table.metadata.snapshots[0].snapshot_id),
    "publish": lambda table: table.cherry_pick(table.metadata.refs["audit"].snapshot_id),
    "alter": lambda table: table.alter([{"set_properties": {"a": "b"}}]),
    "take": _take,
    "purge": lambda table: table.catalog.drop_table(table.identifier, purge=True),
    "drop": lambda table: table.catalog.drop_table(table.identifier),
}
DROPS = ("purge", "drop")


# -- the lake ----------------------------------------------------------------------------------------------------------


class Lake:
    """See above.

    Args:
        home: a folder that is made.
        properties: of the catalog, but for its warehouse; the types `memory` and `stand-in` are this package's tests'.
    """

    def __init__(self, home: Path, properties: dict[str, str]) -> None:
        self.home, self.properties = home, properties
        self.warehouse, self.foreign = home / "warehouse", home / "foreign"
        self.kind = properties["type"]
        self.warehouse.mkdir(parents=True, exist_ok=True)
        self.server = RestStandIn() if self.kind == "stand-in" else None
        builder = {"type": "memory"} if self.server else properties
        self._memory = MemoryCatalog(io=load_file_io(), warehouse=self.warehouse.as_uri(), namespaces=())
        catalog = self.opened("file://{}", builder=builder)
        catalog.create_namespace("db")
        table, self.victim = (
            Table.create(
                catalog, name, schema={"id": "long", "day": "string"}, partition_by=["day"], properties=PROPERTIES
            )
            for name in ("db.t", "db.victim")
        )
        for _ in range(2):
            table.append(ROWS, operation_key=KEY if table.metadata.snapshots else None)
            self.victim.append(ROWS)
        table.append(ROWS, branch="audit", create_branch=True)
        self.folder = Path(_plain(table.location))
        for name in ("data/day=a/orphan.parquet", ".staging/old/plan.json"):
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"x")
        age(self.warehouse)
        self.state = table.catalog.load("db.t")
        self.documents = {
            str(each.identifier): (each.metadata_location, metadata_json.to_dict(each.metadata))
            for each in (table, self.victim.refresh())
        }
        self.live = {_plain(path) for path in reachable(table)}
        self.live_now = {_plain(path) for path in _reachable_now(table)}
        shutil.copytree(self.warehouse, self.foreign)
        shutil.copytree(self.warehouse, home / "backup")
        (home / "lake").symlink_to(self.warehouse)
        (home / "outer").symlink_to(home)

    def close(self) -> None:
        if self.server is not None:
            self.server.close()

    def opened(self, spelling: str, through: str = "warehouse", builder: dict[str, str] | None = None) -> Any:
        """Return a new catalog; the spelling is that of its warehouse."""
        warehouse = spelling.format(f"{self.home}/{through}")
        given = builder or self.properties
        if given["type"] == "memory":
            catalog = MemoryCatalog(io=load_file_io(), warehouse=warehouse, namespaces=())
            catalog._pointers, catalog._properties = self._memory._pointers, self._memory._properties
            return catalog
        if given["type"] == "stand-in":
            assert self.server is not None
            return load_catalog("prod", type="rest", uri=self.server.uri, warehouse=warehouse)
        return load_catalog("prod", **{**given, "warehouse": warehouse})

    def reset(self) -> None:
        """Undo what the last attack and operation have done."""
        shutil.rmtree(self.warehouse)
        shutil.copytree(self.home / "backup", self.warehouse)
        shutil.rmtree(self.home / "aside", ignore_errors=True)
        shutil.rmtree(self.home / "into", ignore_errors=True)
        if self.server is not None:
            self.server.tables = dict(self.documents)
        elif self.kind != "hadoop":
            self._point_to(self.state.metadata_location)

    def _point_to(self, location: str) -> None:
        catalog = self.opened("file://{}")
        for table in catalog.list_tables("db"):
            if table.name != "victim":
                with suppress(IcebergError):
                    catalog.drop_table(table)
        metadata = metadata_json.read(load_file_io().read(location), path=location)
        catalog.swap_metadata(TableId.of("db.t"), base=None, new=location, metadata=metadata)

    # -- attacks -------------------------------------------------------------------------------------------------------

    def carry_out(self, attack: Attack) -> None:
        if attack.forged is not None:
            self._forge(attack.forged, self._place(attack))
        if attack.linked is not None:
            self._link(self._path_of(attack.linked))

    def _place(self, attack: Attack) -> str:
        below = self.folder.relative_to(self.warehouse)
        name = f"{attack.through}/{below}"
        if attack.target == "foreign":
            name = f"{attack.through.replace('warehouse', 'foreign').replace('lake', 'foreign')}/{below}"
        elif attack.target == "victim":
            name = f"{attack.through}/{Path(_plain(self.victim.location)).relative_to(self.warehouse)}"
        elif attack.target == "links into victim":
            (self.home / "into").mkdir()
            for inner in ("data", "metadata", "in"):
                place = Path(_plain(self.victim.location)) / ("data" if inner == "in" else inner)
                (self.home / "into" / inner).symlink_to(place)
            name = "into/in" if attack.forged == "location" else "into"
        elif attack.target.startswith("a link"):
            (self.folder / "in").symlink_to(self.folder if "own" in attack.target else self.foreign / below)
            name = f"{name}/in"
        return attack.spelling.format(f"{self.home}/{name}")

    def _path_of(self, linked: str) -> Path:
        folder = self.folder
        name = self.state.metadata_location.rpartition("/")[2]
        files = [path for path in sorted((folder / "data").rglob("*.parquet")) if "orphan" not in path.name]
        singles = {
            "current metadata": folder / "metadata" / name,
            "a manifest": next(iter(sorted((folder / "metadata").glob("*-m*.avro"))), folder / "metadata" / name),
            "a data file": files[0],
        }
        return {"namespace": folder.parent, "table": folder, **singles}.get(linked, folder / linked)

    def _link(self, place: Path) -> None:
        (self.home / "aside").mkdir()
        if place.exists():
            place.rename(self.home / "aside" / place.name)
        place.symlink_to(self.foreign / place.relative_to(self.warehouse))

    def _forge(self, what: str, place: str) -> None:
        if what == "data file":
            name = str(self._path_of("a data file").relative_to(self.folder))
            with suppress(IcebergError):
                commit_foreign_file(self.opened("file://{}"), "db.t", f"{place}/{name}")
            return

        def change(document: dict[str, Any]) -> None:
            def respelled(path: str) -> str:
                return f"{place}/metadata/{path.rpartition('/')[2]}"

            if what == "location":
                document["location"] = place
            elif what.startswith("write."):
                document["properties"][what] = f"{place}/{'metadata' if 'metadata' in what else 'data'}"
                document["properties"]["write.object-storage.enabled"] = "true" if "object" in what else "false"
            elif what == "manifest list":
                last = document["snapshots"][-1]
                last["manifest-list"] = respelled(last["manifest-list"])
            elif what == "statistics":
                snapshot, path = document["snapshots"][0]["snapshot-id"], respelled(self.state.metadata_location)
                entry = {"snapshot-id": snapshot, "statistics-path": path, "file-size-in-bytes": 1}
                document["statistics"] = [{**entry, "file-footer-size-in-bytes": 1, "blob-metadata": []}]
                document["partition-statistics"] = [entry]
            else:
                document["metadata-log"] = [
                    {**each, "metadata-file": respelled(each["metadata-file"])} for each in document["metadata-log"]
                ]
                document["properties"] |= {
                    "write.metadata.delete-after-commit.enabled": "true",
                    "write.metadata.previous-versions-max": "1",
                }

        folder, _, name = self.state.metadata_location.rpartition("/")
        new = f"v{int(name[1:].partition('.')[0]) + 1}" if self.kind == "hadoop" else "00099-forged"
        new = f"{folder}/{new}.metadata.json"
        load_file_io().create(new, forged(self.state.metadata, change))
        if self.server is not None:
            document = metadata_json.to_dict(self.state.metadata)
            change(document)
            self.server.tables["db.t"] = (new, document)
        elif self.kind != "hadoop":
            with suppress(IcebergError):  # a metastore refuses a location of which it knows no store
                self._point_to(new)

    # -- what came of it -----------------------------------------------------------------------------------------------

    def wrongs(self, attack: Attack, operation: str) -> list[str]:
        """Let somebody honest do something with the attacked table; return what was done that should not have been."""
        self.reset()
        self.carry_out(attack)
        victims = Path(_plain(self.victim.location))
        others = content(victims) if attack.linked != "namespace" else {}
        aside = content(self.home / "aside") if attack.linked else {}
        calls, kernel = LocalCalls(self.foreign), KernelWatch(self.foreign)
        with ExitStack() as stack:
            stack.enter_context(kernel.watching())
            stack.enter_context(calls.watching())
            stack.enter_context(suppress(IcebergError))
            table = Table.load(self.opened("file://{}", attack.through), "db.t")
            OPERATIONS[operation](table)
        wrong = [f"call: {each}" for each in calls.touched] + [f"kernel: {each}" for each in kernel.seen]
        if content(self.foreign) != calls._content:
            wrong.append("the foreign folder has changed")
        now = content(victims) if others else {}
        # Whoever commits to a table may let it write anywhere in the warehouse: what is there stays as it is.
        wrong += [
            f"a file of the other table has changed: {name}"
            for name, (data, _) in others.items()
            if data is not None and now.get(name, (None,))[0] != data
        ]
        if aside and content(self.home / "aside") != aside:
            wrong.append("what was moved aside has changed")
        if attack.is_honest and operation not in DROPS:
            kept = self.live if operation != "expire" else self.live_now
            wrong += [f"a live file is gone: {path}" for path in sorted(kept) if not os.path.exists(path)]
        return [f"{self.kind}, {attack}, {operation}: {each}" for each in wrong]


def _reachable_now(table: Table) -> set[str]:
    """Return the files of the last snapshot, which an expiry keeps; its list goes if there is a later snapshot."""
    last = table.metadata.current_snapshot()
    assert last is not None
    manifests = read_manifests(table.io, last)
    entries = (entry for manifest in manifests for entry in read_entries(table.io, manifest))
    paths = {entry.data_file.file_path for entry in entries if entry.is_live}
    return paths | {manifest.manifest_path for manifest in manifests}


def _plain(location: str) -> str:
    """Return the path of an honest location."""
    return location.removeprefix("file://").removeprefix("file:")
