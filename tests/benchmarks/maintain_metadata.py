"""Expiry, orphans and manifests: work on metadata, on a table of 100,000 files that is metadata alone."""

import os
import time
from pathlib import Path

from airflow_iceberg.operations.expire_snapshots import ExpireSnapshotsRequest, expire_snapshots
from airflow_iceberg.operations.remove_orphan_files import RemoveOrphanFilesRequest, remove_orphan_files
from airflow_iceberg.operations.rewrite_manifests import RewriteManifestsRequest, rewrite_manifests
from airflow_iceberg.operations.work import Work
from airflow_iceberg.table import Table
from tests.benchmarks import big_metadata
from tests.benchmarks.maintained import Frozen, Warehouse, against_java, sql_now
from tests.benchmarks.measure import note
from tests.benchmarks.sessions import check_rows

GOAL = 0.5
RETAINED = 10
LISTED, ORPHANS = 200_000, 1_000
OLD_SECONDS = 10 * 86_400
ORPHANS_WARM_UP = 4
"""So many runs Java needs until it gets no faster."""
FILES = big_metadata.SNAPSHOTS * big_metadata.FILES_PER_SNAPSHOT


def _our_expiry(warehouse: Warehouse) -> None:
    request = ExpireSnapshotsRequest(older_than_ms=int(time.time() * 1000), retain_last=RETAINED)
    result = expire_snapshots(Work(warehouse.load("metadata")), request)
    check_rows("our expiry", result.expired_snapshots, big_metadata.SNAPSHOTS - RETAINED)


def _expiry_of_java(warehouse: Warehouse) -> None:
    (found,) = warehouse.java.sql(
        f"call ref.system.expire_snapshots(table => 'db.metadata', older_than => timestamp '{sql_now()}', "
        f"retain_last => {RETAINED})"
    )
    check_rows("Java's expiry", found["deleted_manifest_lists_count"], big_metadata.SNAPSHOTS - RETAINED)


def _our_manifests(warehouse: Warehouse) -> None:
    result = rewrite_manifests(Work(warehouse.load("metadata")), RewriteManifestsRequest())
    check_rows("our manifests", result.manifests_replaced, big_metadata.SNAPSHOTS)
    note(f"    ours: {result.manifests_created} manifests")


def _manifests_of_java(warehouse: Warehouse) -> None:
    (found,) = warehouse.java.sql("call ref.system.rewrite_manifests(table => 'db.metadata')")
    check_rows("Java's manifests", found["rewritten_manifests_count"], big_metadata.SNAPSHOTS)
    note(f"    Iceberg Java: {found['added_manifests_count']} manifests")


def _our_orphans(warehouse: Warehouse) -> None:
    """Make a dry run over the files of the table, young files that are not the table's, and some orphans."""
    result = remove_orphan_files(Work(warehouse.load("files")), RemoveOrphanFilesRequest(action="dry_run"))
    check_rows("our scan", result.orphan_files, ORPHANS)


def _orphans_of_java(warehouse: Warehouse) -> None:
    found = warehouse.java.sql("call ref.system.remove_orphan_files(table => 'db.files', dry_run => true)")
    check_rows("Java's scan", len(found), ORPHANS)


def _big_table(warehouse: Warehouse, name: str = "metadata", *, with_files: bool = False) -> Frozen:
    """Return the table of metadata alone, in the place where a Hadoop catalog looks for it."""
    folder = warehouse.folder / "db" / name

    def make() -> None:
        made = big_metadata.make_in(folder)
        made.rename(made.with_name("v1.metadata.json"))
        made.with_name("version-hint.text").write_text("1")
        (folder / "data").mkdir(exist_ok=True)
        if with_files:
            _make_files(warehouse.load(name))

    return Frozen.of(folder, make)


def _make_files(table: Table) -> None:
    note(f"  making {LISTED:,} empty files")
    known = [Path(task.file.file_path.removeprefix("file://")) for task in table.scan().plan_files()]
    places = sorted({path.parent for path in known})
    unknown = [places[number % len(places)] / f"other-{number}.parquet" for number in range(LISTED - len(known))]
    for place in places:
        place.mkdir(parents=True, exist_ok=True)
    for path in (*known, *unknown):
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o644))
    # Of the others nobody knows whether a job is at work on them: they are never old, however long the table is kept.
    old, young = time.time() - OLD_SECONDS, time.time() + 10 * 365 * 86_400
    for path in (*known, *unknown):
        os.utime(path, (young, young))
    for path in unknown[:ORPHANS]:
        os.utime(path, (old, old))


SNAPSHOTS = big_metadata.SNAPSHOTS
LINES = (
    against_java(
        "expiry",
        f"expiry of {SNAPSHOTS - RETAINED} of {SNAPSHOTS} snapshots of {FILES:,} files",
        _big_table,
        ours=_our_expiry,
        java=_expiry_of_java,
        goal=GOAL,
    ),
    against_java(
        "manifests",
        f"rewrite of {SNAPSHOTS} manifests of {FILES:,} files",
        _big_table,
        ours=_our_manifests,
        java=_manifests_of_java,
        goal=GOAL,
    ),
    against_java(
        "orphans",
        f"scan for orphans over {LISTED:,} listed files",
        lambda warehouse: _big_table(warehouse, "files", with_files=True),
        ours=_our_orphans,
        java=_orphans_of_java,
        goal=GOAL,
        warm_up=ORPHANS_WARM_UP,
    ),
)
