"""A small table in a catalog in which files and swaps can go wrong, step by step.

    catalog = world("hadoop")                       # files: catalog.io.rules
    faulty = behind(catalog, [Fault.CONFLICT])      # swaps, where the catalog has some

Two kinds: with a pointer that is swapped, and with the metadata file itself as the pointer, as Hadoop's catalog has it.
"""

import dataclasses
from collections import Counter
from contextlib import contextmanager
from functools import cache

from airflow_iceberg.catalogs.hadoop.catalog import HadoopCatalog
from airflow_iceberg.commit.settings import now_ms
from airflow_iceberg.inventory.manifests import read_manifests
from airflow_iceberg.storage.directories import FsspecDirectories
from airflow_iceberg.table import Table
from tests.support.changes import (
    NAME,
    Append,
    DynamicOverwrite,
    MergeOnReadDelete,
    ids,
    live_entries,
    make_table,
    plan,
    rows_of,
)
from tests.support.memory import Fault, FaultyCatalog, FaultyFileIO, FileFault, MemoryCatalog, MemoryFileIO

# Appends so small that the next commit merges their manifests: three in one partition, one in the other.
BASE = [Append("a", ids(1, 2)), Append("a", ids(3)), MergeOnReadDelete(ids(1)), Append("b", ids(4))]
# Refs of the start: a tag of the head of main, and branches that are one change ahead of the commit before that: a pick
# makes a snapshot, instead of moving main to theirs, which is tried in `test_refs_exactly_once`.
TAG = "release"
SINCE = Append("c", ids(10))
AHEAD = "ahead"  # of main
BRANCHES = {"more": Append("b", ids(5)), "other": DynamicOverwrite("b", ids(6))}
# A partition spec that nothing uses any more is there as well.
UNUSED_SPEC = [{"add_partition_field": "bucket(3, id)"}], [{"drop_partition_field": "bucket(3, id)"}]
FILE_FAULTS = {
    "read": [FileFault.FAIL, FileFault.CRASH_BEFORE],
    "exists": [FileFault.FAIL, FileFault.CRASH_BEFORE],
    "create": [
        *(FileFault.TORN_THEN_FAIL, FileFault.DO_THEN_FAIL, FileFault.LATE),
        *(FileFault.FAIL, FileFault.CRASH_BEFORE, FileFault.CRASH_AFTER),
    ],
    "delete": [FileFault.FAIL, FileFault.LATE, FileFault.CRASH_BEFORE, FileFault.CRASH_AFTER],
}
# Among them the echo: a request that was repeated on its way, and loses to itself.
SWAP_FAULTS = [fault for fault in Fault if fault is not Fault.PROCEED]
# How many other requests a late one lets go before it: the last arrives when the next try of the task is done, the one
# before when the first try has ended.
LATE_AFTER = (1, 2, 99)
# With a pointer that is swapped, and with the metadata file itself as the pointer.
KINDS = ("pointer", "hadoop")
PROPERTIES = {
    "commit.manifest.min-count-to-merge": "4",
    "commit.status-check.min-wait-ms": "1",
    "commit.status-check.max-wait-ms": "1",
}


class AgedFileIO(FaultyFileIO):
    """Lists every file as ten days old, but for those of a writer at work.

    Attributes:
        young: locations of files that were written just now.
    """

    def __init__(self, inner=None):
        super().__init__(inner or MemoryFileIO())
        self.young = set()

    def list(self, prefix):
        for status in super().list(prefix):
            age_ms = 0 if status.location in self.young else 10 * 24 * 60 * 60 * 1000
            yield dataclasses.replace(status, modified_ms=now_ms() - age_ms)


class RemoteFileIO(FaultyFileIO):
    """Files as on a server: what has failed may come true later."""

    @contextmanager
    def directory(self, location, verb):
        filesystem, path = self.filesystem(location)
        directories = FsspecDirectories(filesystem)
        directories.answers_are_final = False
        yield directories, path


def new_catalog(kind, io):
    if kind == "pointer":
        return MemoryCatalog(io=io)
    return HadoopCatalog("memory", {"warehouse": "memory://warehouse"}, io=io, sleep=lambda seconds: None)


@cache
def base_table(kind, version):
    catalog = new_catalog(kind, MemoryFileIO())
    catalog.create_namespace("db", if_not_exists=True)
    make_table(catalog, version, **PROPERTIES)
    for step in BASE:
        plan(catalog, step).commit()
    for changes in UNUSED_SPEC:
        Table.load(catalog, NAME).alter(changes)
    for branch, change in BRANCHES.items():
        make_ref(catalog, branch)
        plan(catalog, change, branch=branch).commit()
    plan(catalog, SINCE).commit()
    make_ref(catalog, TAG)
    make_ref(catalog, AHEAD)
    plan(catalog, Append("b", ids(11)), branch=AHEAD).commit()
    return catalog.io, catalog.load(NAME).metadata_location


def make_ref(catalog, name):
    table = Table.load(catalog, NAME)
    (table.create_tag if name == TAG else table.create_branch)(name)


def world(kind="pointer", version=3, late_after=1):
    """Return a catalog in which files and swaps can go wrong, with the table of the start."""
    io, location = base_table(kind, version)
    catalog = new_catalog(kind, RemoteFileIO(io.copy(), late_after=late_after))
    if kind == "pointer":
        catalog.register_table(NAME, location)
    if not io.found:  # for all copies
        rows_now(catalog)
        check_whole(catalog)
        io.found = dict(catalog.io.inner.found)
    return catalog


def behind(catalog, swaps=(), late_after=1):
    """Return the catalog with faults of its swaps; a Hadoop catalog's swap is the creation of a file."""
    return FaultyCatalog(catalog, swaps, late_after=late_after) if isinstance(catalog, MemoryCatalog) else catalog


def numbered(calls):
    """Return each call with how many of its kind came before, and the ways in which it can go wrong."""
    seen = Counter()
    for call, location in calls:
        if call in FILE_FAULTS:
            yield call, seen[call], faults_of(call, location)
        seen[call] += 1


def faults_of(call, location):
    """Return the ways; a version is created whole or not at all, which is what each store is tested for."""
    is_version = location.rpartition("/")[2].startswith("v")
    return [fault for fault in FILE_FAULTS[call] if not (is_version and fault is FileFault.TORN_THEN_FAIL)]


def rows_now(catalog):
    """Return the table's rows."""
    return _checked(catalog, rows_of)


def check_whole(catalog):
    def check(catalog):
        io, table = catalog.io.inner, Table.load(catalog, NAME)
        assert all(io.exists(entry.data_file.file_path) for entry in live_entries(table))
        for snapshot in table.snapshots():
            assert all(io.exists(manifest.manifest_path) for manifest in read_manifests(io, snapshot))

    _checked(catalog, check)


def _checked(catalog, check):
    """Return what a check of the table gives: what it gave last time, if no file and no pointer has changed since."""
    io, location = catalog.io.inner, catalog.load(NAME).metadata_location
    known, files = io.found.get(check.__name__), io.files
    if known is None or known[:2] != (location, files):
        known = io.found[check.__name__] = location, files, check(catalog)
    return known[2]


# -- the name ----------------------------------------------------------------------------------------------------------


OTHER = "db.other"


def rename(catalog, table):
    catalog.rename_table(NAME, OTHER)


def replace(catalog, table):
    """Be two: one that gives the table another name, and one that gives its name to another table."""
    rename(catalog, table)
    make_table(catalog)


# What a change is told when such a rival comes, and whether it is made. A conflict may be the echo of a request that
# has landed before the rival came.
OUTCOMES_OF_RENAMED = {
    Fault.CONFLICT: ("unknown", False),
    Fault.LAND_THEN_RIVAL_THEN_CONFLICT: ("unknown", True),
    Fault.RIVAL_THEN_UNKNOWN: ("unknown", False),
    Fault.LAND_THEN_RIVAL_THEN_UNKNOWN: ("unknown", True),
}


def all_texts(error: BaseException | None, *, with_suppressed: bool = False) -> str:
    """Return the texts of an error and of those that are shown with it, in which no secret may be."""
    texts = ""
    while error is not None:
        texts += f"{error} {error!r} "
        is_shown = with_suppressed or not error.__suppress_context__
        error = error.__cause__ or (error.__context__ if is_shown else None)
    return texts
