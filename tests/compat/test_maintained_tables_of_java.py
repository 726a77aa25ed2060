"""Tables that Iceberg Java writes while we maintain them: nothing that lives goes, and Java reads what it wrote.

A random history of Java's statements: inserts, deletes by vectors that share Puffin files (position deletes in version
2), branches, tags, rollbacks, staged snapshots and cherry-picks of them; between them our compaction, rewriting of
manifests, expiry and clean-up. Which files the table needs is found by brute force after each step.
"""

from collections import Counter
from random import Random
from typing import Any
from uuid import uuid4

import pytest

from airflow_iceberg.catalogs.base import Catalog
from airflow_iceberg.commit.settings import now_ms
from airflow_iceberg.errors import AlreadyExistsError
from airflow_iceberg.inventory.manifests import read_entries, read_manifests
from airflow_iceberg.jobs.run_local import run_local
from airflow_iceberg.operations.compact import CompactRequest, compact
from airflow_iceberg.operations.expire_snapshots import ExpireSnapshotsRequest, expire_snapshots
from airflow_iceberg.operations.quarantine import quarantines, restore_quarantine
from airflow_iceberg.operations.remove_orphan_files import RemoveOrphanFilesRequest, remove_orphan_files
from airflow_iceberg.operations.rewrite_manifests import RewriteManifestsRequest, rewrite_manifests
from airflow_iceberg.operations.work import Work
from airflow_iceberg.table import Table
from tests.support.iceberg_java import IcebergJava

pytestmark = [pytest.mark.java, pytest.mark.long]

DAY_MS = 24 * 60 * 60 * 1000
STEPS = 22
LINEAGE = ("_row_id", "_last_updated_sequence_number")
Rows = Counter[tuple[Any, ...]]


class History:
    """One table; Java changes it, we maintain it.

    Attributes:
        rows: of each snapshot, as Java read them when it was new.
        staged: snapshots that Java staged and nobody has picked.
    """

    def __init__(self, java: IcebergJava, catalog: Catalog, version: int, seed: int) -> None:
        self.java, self.catalog, self.random = java, catalog, Random(seed)
        self.version = version
        self.short = f"maintained_{version}_{seed}_{uuid4().hex[:6]}"
        self.name = f"ref.db.{self.short}"
        self.rows: dict[int, Rows] = {}
        self.staged: list[int] = []
        self.done: list[str] = []
        self.number = 0
        java.sql(
            f"create table {self.name} (part string, id bigint) using iceberg partitioned by (part) tblproperties "
            f"('format-version'='{version}', 'write.delete.mode'='merge-on-read', 'write.wap.enabled'='true')"
        )
        for _ in range(3):
            self.insert()
        self.note()

    @property
    def table(self) -> Table:
        return Table.load(self.catalog, f"db.{self.short}")

    # -- what Java does ------------------------------------------------------------------------------------------------

    def sql(self, statement: str) -> list[dict[str, Any]]:
        self.done.append(statement)
        return self.java.sql(statement)

    def insert(self) -> None:
        rows = ", ".join(f"('{self.random.choice('ab')}', {n})" for n in range(self.number, self.number + 4))
        self.number += 4
        self.sql(f"insert into {self.name} values {rows}")

    def delete(self) -> None:
        """One statement touches files of both partitions: in version 3 their vectors come into one Puffin file."""
        self.sql(f"delete from {self.name} where id % {self.random.randint(3, 7)} = {self.random.randint(0, 2)}")

    def update(self) -> None:
        self.sql(f"update {self.name} set part = 'c' where id % 9 = {self.random.randint(0, 8)}")

    def make_a_ref(self) -> None:
        kind, snapshot = self.random.choice(("branch", "tag")), self.any_snapshot()
        self.sql(f"alter table {self.name} create or replace {kind} a_{kind} as of version {snapshot}")

    def drop_a_ref(self) -> None:
        kind = self.random.choice(("branch", "tag"))
        self.sql(f"alter table {self.name} drop {kind} if exists a_{kind}")

    def write_to_the_branch(self) -> None:
        if "a_branch" in self.table.refs:
            self.sql(f"insert into {self.name}.branch_a_branch values ('a', {self.number})")
            self.number += 1

    def roll_back(self) -> None:
        table = self.table
        head = table.current_snapshot()
        history = list(table.metadata.ancestors(head.snapshot_id if head else None))
        snapshot = self.random.choice(history[:3]).snapshot_id
        self.sql(f"call ref.system.rollback_to_snapshot('db.{self.short}', {snapshot})")

    def set_current(self) -> None:
        self.sql(f"call ref.system.set_current_snapshot('db.{self.short}', {self.any_snapshot()})")

    def stage(self) -> None:
        before = {snapshot.snapshot_id for snapshot in self.table.snapshots()}
        self.sql(f"set spark.wap.id=wap{self.number}")
        try:
            self.insert()
        finally:
            self.sql("reset spark.wap.id")
        self.staged += [s.snapshot_id for s in self.table.snapshots() if s.snapshot_id not in before]

    def cherry_pick(self) -> None:
        """Java picks what it has staged, which shares the files of the staged snapshot."""
        there = {snapshot.snapshot_id for snapshot in self.table.snapshots()}
        self.staged = [snapshot_id for snapshot_id in self.staged if snapshot_id in there]
        if self.staged:
            self.sql(f"call ref.system.cherrypick_snapshot('db.{self.short}', {self.staged.pop()})")

    def any_snapshot(self) -> int:
        return self.random.choice(self.table.snapshots()).snapshot_id

    # -- what we do ----------------------------------------------------------------------------------------------------

    def compact(self) -> None:
        table = self.table
        request = CompactRequest(options={"rewrite-all": True} if self.random.random() < 0.5 else {})
        compact(Work(table, run=lambda job: run_local(job, table.io, threads=1)), request)

    def rewrite_manifests(self) -> None:
        rewrite_manifests(Work(self.table), RewriteManifestsRequest())

    def expire(self) -> None:
        before, kept = self.needed(), self.random.randint(1, 3)
        expire_snapshots(Work(self.table), ExpireSnapshotsRequest(older_than_ms=now_ms() + DAY_MS, retain_last=kept))
        left = (before - self.needed()) & self.there()
        assert not [path for path in left if not path.endswith(".metadata.json")]

    def clean(self) -> None:
        action = self.random.choice(("quarantine", "delete"))
        remove_orphan_files(
            Work(self.table),
            RemoveOrphanFilesRequest(action=action, older_than_ms=now_ms() + DAY_MS, allow_recent=True),
        )
        assert not self.there() - self.needed()

    def restore(self) -> None:
        for name in quarantines(self.table):
            try:
                restore_quarantine(Work(self.table), name)
            except AlreadyExistsError:
                continue

    # -- what has to be true -------------------------------------------------------------------------------------------

    def run(self) -> None:
        java = (self.insert, self.delete, self.update, self.make_a_ref, self.drop_a_ref, self.write_to_the_branch)
        java += (self.roll_back, self.set_current, self.stage, self.stage, self.cherry_pick, self.cherry_pick)
        ours = (self.compact, self.rewrite_manifests, self.expire, self.expire, self.clean, self.restore)
        for number in range(STEPS):
            step = self.random.choice(ours if number % 3 == 2 else java)
            before = self.heads()
            self.done.append(step.__name__)
            step()
            if step in ours:
                after = self.heads()
                assert {name: after[name] for name in after} == {name: before[name] for name in after}, self.done
            self.note()
            self.check()
        for snapshot in self.table.snapshots():
            assert self.of_java(snapshot.snapshot_id) == self.rows[snapshot.snapshot_id], self.done

    def note(self) -> None:
        table = self.table
        for snapshot in table.snapshots():
            if snapshot.snapshot_id not in self.rows:
                self.rows[snapshot.snapshot_id] = self.of_java(snapshot.snapshot_id)

    def check(self) -> None:
        missing = self.needed() - self.there()
        assert not missing, self.done
        table = self.table
        for snapshot in table.snapshots():
            assert self.of_ours(table, snapshot.snapshot_id) == self.rows[snapshot.snapshot_id], self.done

    def of_java(self, snapshot_id: int) -> Rows:
        columns = ", ".join(("part", "id", *(LINEAGE if self.version >= 3 else ())))
        found = self.java.rows(f"select {columns} from {self.name} version as of {snapshot_id}")
        return Counter(tuple(row.values()) for row in found)

    def of_ours(self, table: Table, snapshot_id: int) -> Rows:
        columns = ("part", "id", *(LINEAGE if self.version >= 3 else ()))
        found = table.scan(snapshot_id=snapshot_id, selected_fields=columns).to_arrow()
        return Counter(zip(*(found[name].to_pylist() for name in columns), strict=True))

    def heads(self) -> dict[str, Rows]:
        table = self.table
        return {name: self.of_ours(table, ref.snapshot_id) for name, ref in table.refs.items()}

    def needed(self) -> set[str]:
        """Every file that the metadata leads to, entry by entry, as plain paths."""
        table = self.table
        found = {table.metadata_location, *(location for _, location in table.metadata.metadata_log)}
        for snapshot in table.snapshots():
            found.add(snapshot.manifest_list or "")
            for manifest in read_manifests(table.io, snapshot):
                found.add(manifest.manifest_path)
                found |= {e.data_file.file_path for e in read_entries(table.io, manifest) if e.is_live}
        return {_path(location) for location in found}

    def there(self) -> set[str]:
        table = self.table
        found = {_path(status.location) for status in table.io.list(table.location)}
        hidden = ("/.quarantine/", "/.staging/", "/version-hint.text")
        return {path for path in found if not any(name in path for name in hidden) and not path.endswith(".crc")}


def _path(location: str) -> str:
    """Java writes file:/…, we write file:///…"""
    return "/" + location.removeprefix("file:").lstrip("/")


class TestTheTableOfBoth:
    """After every step every snapshot reads as Java read it when it was new, row ids and all."""

    @pytest.mark.parametrize(("version", "seed"), [(version, seed) for version in (2, 3) for seed in range(1, 7)])
    def test_stays_whole(self, version: int, seed: int, java: IcebergJava, catalog: Catalog) -> None:
        History(java, catalog, version, seed).run()
