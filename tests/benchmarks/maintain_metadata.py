"""Expiry, orphans and manifests: work on metadata, on a table of 100,000 files that is metadata alone."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

from airflow_iceberg.operations.expire_snapshots import ExpireRequest, expire_snapshots
from airflow_iceberg.operations.remove_orphan_files import OrphanRequest, remove_orphan_files
from airflow_iceberg.operations.rewrite_manifests import RewriteManifestsRequest, rewrite_manifests
from airflow_iceberg.operations.work import Work
from airflow_iceberg.table import Table
from tests.benchmarks import big_metadata
from tests.benchmarks.maintained import Frozen, Sides, against_java, sql_now
from tests.benchmarks.measure import Measurement, note
from tests.benchmarks.sessions import check_rows

GOAL = 0.5
RETAINED = 10
LISTED, ORPHANS = 200_000, 1_000
OLD_SECONDS = 10 * 86_400
FILES = big_metadata.SNAPSHOTS * big_metadata.FILES_PER_SNAPSHOT


def expiry(sides: Sides, *, runs: int) -> Iterator[Measurement]:
    """Measure the expiry of most snapshots."""
    frozen = _big_table(sides, "big")

    def ours() -> None:
        request = ExpireRequest(older_than_ms=int(time.time() * 1000), retain_last=RETAINED)
        result = expire_snapshots(Work(sides.load("big")), request)
        check_rows("our expiry", result.expired_snapshots, big_metadata.SNAPSHOTS - RETAINED)

    def java() -> None:
        (found,) = sides.java.sql(
            f"call ref.system.expire_snapshots(table => 'db.big', older_than => timestamp '{sql_now()}', "
            f"retain_last => {RETAINED})"
        )
        check_rows("Java's expiry", found["deleted_manifest_lists_count"], big_metadata.SNAPSHOTS - RETAINED)

    what = f"expiry of {big_metadata.SNAPSHOTS - RETAINED} of {big_metadata.SNAPSHOTS} snapshots of {FILES:,} files"
    yield against_java(what, frozen, ours=ours, java=java, goal=GOAL, runs=runs)


def manifests(sides: Sides, *, runs: int) -> Iterator[Measurement]:
    """Measure the rewrite of all manifests."""
    frozen = _big_table(sides, "big")

    def ours() -> None:
        result = rewrite_manifests(Work(sides.load("big")), RewriteManifestsRequest())
        check_rows("our manifests", result.manifests_replaced, big_metadata.SNAPSHOTS)
        note(f"    ours: {result.manifests_created} manifests")

    def java() -> None:
        (found,) = sides.java.sql("call ref.system.rewrite_manifests(table => 'db.big')")
        check_rows("Java's manifests", found["rewritten_manifests_count"], big_metadata.SNAPSHOTS)
        note(f"    Iceberg Java: {found['added_manifests_count']} manifests")

    what = f"rewrite of {big_metadata.SNAPSHOTS} manifests of {FILES:,} files"
    yield against_java(what, frozen, ours=ours, java=java, goal=GOAL, runs=runs)


def orphans(sides: Sides, *, runs: int) -> Iterator[Measurement]:
    """Measure a dry run over the files of the table, young files that nobody knows, and some orphans."""
    frozen = _big_table(sides, "listed", with_files=True)

    def ours() -> None:
        result = remove_orphan_files(Work(sides.load("listed")), OrphanRequest(action="dry_run"))
        check_rows("our scan", result.orphan_files, ORPHANS)

    def java() -> None:
        found = sides.java.sql("call ref.system.remove_orphan_files(table => 'db.listed', dry_run => true)")
        check_rows("Java's scan", len(found), ORPHANS)

    yield against_java(
        f"scan for orphans over {LISTED:,} listed files", frozen, ours=ours, java=java, goal=GOAL, runs=runs
    )


def _big_table(sides: Sides, name: str, *, with_files: bool = False) -> Frozen:
    """Return the table of metadata alone, in the place where a Hadoop catalog looks for it."""
    root = sides.warehouse / f"made-{name}"
    folder = big_metadata.folder_of(root)

    def make() -> None:
        made = big_metadata.make(root)
        # The location that the metadata names stays: the catalog's name for it is a link.
        link = sides.warehouse / "db" / name
        link.unlink(missing_ok=True)
        os.symlink(folder, link)
        made.rename(made.with_name("v1.metadata.json"))
        made.with_name("version-hint.text").write_text("1")
        (folder / "data").mkdir(exist_ok=True)
        if with_files:
            _make_files(sides.load(name))

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
