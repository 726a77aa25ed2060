"""The race of many processes for one table: each append is there once, whoever wins, and nothing is left over.

One piece for all catalogs; `test_races` runs it on each of them, `test_races_beside` beside other engines.
"""

import itertools
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.catalogs.base import Catalog
from airflow_iceberg.inventory.manifests import read_manifests
from airflow_iceberg.table import Table
from tests.support.processes import run_processes

WRITERS = 8
SCHEMA = {"writer": "int", "number": "int"}


def row(writer: int, number: int) -> pa.Table:
    return pa.table({"writer": pa.array([writer], pa.int32()), "number": pa.array([number], pa.int32())})


def append(name: str, properties: Mapping[str, str], table: str, writer: int, commits: int) -> list[int]:
    """Append rows one by one, with a catalog of our own, and return the snapshots that we were told of."""
    ours = Table.load(load_catalog(name, **properties), table)
    told = [ours.append(row(writer, number)).snapshot_id for number in range(commits)]
    assert None not in told
    return [each for each in told if each is not None]


def race(
    properties: Mapping[str, str],
    *,
    commits: int,
    writers: int = WRITERS,
    name: str = "prod",
    table: str = "db.raced",
    seconds: float = 3600,
) -> Table:
    """Let processes append to a new table at the same time, check what came of it, and return the table.

    Args:
        properties: of a catalog that has no such table.
        commits: of each writer.
    """
    catalog = load_catalog(name, **properties)
    catalog.create_namespace(table.partition(".")[0], if_not_exists=True)
    Table.create(catalog, table, schema=SCHEMA)
    jobs = [(name, dict(properties), table, writer, commits) for writer in range(writers)]
    told = run_processes(append, jobs, seconds=seconds)
    raced = Table.load(catalog, table)
    snapshots = raced.metadata.snapshots
    assert sorted(snapshot.snapshot_id for snapshot in snapshots) == sorted(each for some in told for each in some)
    check_history(raced, writers * commits)
    check_rows(catalog, table, [(writer, number) for writer in range(writers) for number in range(commits)])
    check_no_leftovers(raced, metadata_is_ours=properties.get("type") != "rest")
    return raced


def check_history(table: Table, commits: int) -> None:
    """One snapshot a commit, each on top of the one before, and the last one counts a file and a row of each."""
    snapshots = table.metadata.snapshots
    assert [snapshot.sequence_number for snapshot in snapshots] == list(range(1, commits + 1))
    parents = [snapshot.parent_snapshot_id for snapshot in snapshots]
    assert parents == [None, *(snapshot.snapshot_id for snapshot in snapshots[:-1])]
    head = table.metadata.current_snapshot()
    assert head is not None
    assert head.summary["total-records"] == head.summary["total-data-files"] == str(commits)


def check_rows(catalog: Catalog, table: str, expected: Sequence[tuple[int, int]]) -> None:
    rows = Table.load(catalog, table).scan().to_arrow().to_pylist()
    assert Counter((each["writer"], each["number"]) for each in rows) == Counter(expected)


def check_no_leftovers(table: Table, *, metadata_is_ours: bool) -> None:
    """Attempts that lost leave no metadata behind: a file for each commit, and no manifest that no snapshot names.

    Args:
        metadata_is_ours: we write the metadata files. A REST server does that itself, and Iceberg Java's leaves some of
            attempts that lost.
    """
    snapshots = table.metadata.snapshots
    named = {snapshot.manifest_list for snapshot in snapshots}
    for snapshot in snapshots:
        named |= {manifest.manifest_path for manifest in read_manifests(table.io, snapshot)}
    lying = {_plain(status.location) for status in table.io.list(f"{table.location}/metadata")}
    assert {each for each in lying if each.endswith(".avro")} == {_plain(each) for each in named if each}
    # The log of metadata files is cut to 100 entries (write.metadata.previous-versions-max), the older files stay.
    left = len([each for each in lying if each.endswith(".metadata.json")]) - len(snapshots) - 1
    assert left == 0 or (left > 0 and not metadata_is_ours), f"{left} metadata files of attempts that lost"


def _plain(location: str) -> str:
    """Iceberg Java writes file:/… where we write file:///…"""
    return location.replace("file:///", "file:/")


# -- beside other engines ------------------------------------------------------------------------------------------

OURS, THEIRS = 1, 7  # the writers, in the rows
# Another engine gives up after a handful of lost races unless the table says otherwise.
PATIENCE = {"commit.retry.num-retries": "200", "commit.retry.min-wait-ms": "20", "commit.retry.max-wait-ms": "300"}


def race_beside(
    catalog: Catalog, table: str, insert: Callable[[int], None], *, least: int = 12, turns: int = 6
) -> list[tuple[int, int]]:
    """Append to a table while another engine does, until both have had their turns, and check it as we see it.

    It ends by what happened, not by the clock: one that runs before the other proves nothing.

    Args:
        table: an empty one with `SCHEMA`, and `PATIENCE` for most engines.
        insert: lets the other engine add the row (THEIRS, number) in one commit.
        least: appends of each.
        turns: how often the history must go from one to the other.

    Returns:
        The rows that are in the table now, for whoever else looks.
    """
    insert(0)  # it is warm from here on
    stopped = threading.Event()
    began, took = time.monotonic(), 1.0

    def theirs() -> int:
        nonlocal began, took
        number = 1
        while not stopped.is_set():
            began = time.monotonic()
            insert(number)
            took = time.monotonic() - began
            number += 1
        return number

    mine: set[int | None] = set()
    ours = Table.load(catalog, table)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(theirs)
        try:
            while not _is_mixed(ours, mine, least, turns):
                assert not running.done(), running.result()
                assert len(mine) < 500, "the two do not race"
                mine.add(ours.append(row(OURS, len(mine))).snapshot_id)
                # We are the faster one: without a pause about as long as its commits, the one among them that goes on
                # and on because it loses, it would lose each race.
                time.sleep(random.random() * min(max(took, time.monotonic() - began), 10.0))
        finally:
            stopped.set()
        inserted = running.result()
    expected = [*((THEIRS, number) for number in range(inserted)), *((OURS, number) for number in range(len(mine)))]
    check_rows(catalog, table, expected)
    check_history(Table.load(catalog, table), len(expected))
    return expected


def _is_mixed(table: Table, mine: set[int | None], least: int, turns: int) -> bool:
    is_ours = [snapshot.snapshot_id in mine for snapshot in table.metadata.snapshots]
    turned = sum(one != other for one, other in itertools.pairwise(is_ours))
    return min(is_ours.count(True), is_ours.count(False)) >= least and turned >= turns
