"""Maintenance, side by side with the procedures of Iceberg Java on the same table, which is put back after each run.

Compaction and sorting of 400 small files: ours is the whole of it, from the plan to the commit, with the job on the
peer's Spark; bare pyarrow, two processes that read the same files and write files of the target size, says how much of
our time is anything else than Parquet. Expiry, orphans and manifests are work on metadata: of the table of 100,000
files that is metadata alone. Starting Spark and putting the table back are not part of it.
"""

import multiprocessing
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.cleaning import OrphanRequest, remove_orphans
from airflow_iceberg.commit.append import AppendFiles
from airflow_iceberg.compacting import CompactionRequest, compact
from airflow_iceberg.data.append import write_rows
from airflow_iceberg.expiring import ExpireRequest, expire_snapshots
from airflow_iceberg.jobs.protocol import JobPlan, JobResult
from airflow_iceberg.manifest_rewriting import rewrite_manifests
from airflow_iceberg.table import Table
from tests.benchmarks import big_metadata, lineitem
from tests.benchmarks.measure import Measurement, Stopwatch, alternate, note
from tests.benchmarks.sessions import SPARK_35, OurSpark, check_rows
from tests.support.iceberg_java import IcebergJava

BINPACK_GOAL, BARE_GOAL, SORT_GOAL, METADATA_GOAL = 0.33, 1.1, 0.45, 0.5
SMALL_FILES = 400
TARGET_BYTES = 128 << 20
SORT_COLUMN = "l_shipdate"
RETAINED = 10
LISTED, ORPHANS = 200_000, 1_000
OLD_SECONDS = 10 * 86_400


def measure(folder: Path, *, rows: int, runs: int) -> Iterator[Measurement]:
    """Measure all of it in one pair of sessions."""
    warehouse = folder / "maintain"
    shutil.rmtree(warehouse, ignore_errors=True)
    (warehouse / "db").mkdir(parents=True)
    try:
        with ExitStack() as stack:
            java = stack.enter_context(_java(warehouse))
            yield from _metadata(java, warehouse, runs)
            ours = stack.enter_context(OurSpark(SPARK_35, folder / "ours"))
            yield from _compaction(java, ours, warehouse, rows, runs)
    finally:
        shutil.rmtree(warehouse, ignore_errors=True)


def _java(warehouse: Path) -> IcebergJava:
    # A table that is put back must not be remembered.
    settings = {"spark.sql.catalog.ref.cache-enabled": "false", "spark.driver.memory": "2g"}
    return IcebergJava.start(warehouse.as_uri(), **settings)


def _load(warehouse: Path, name: str) -> Table:
    return Table.load(load_catalog("bench", type="hadoop", warehouse=warehouse.as_uri()), f"db.{name}")


class Frozen:
    """The state of a table's folder, and the way back to it.

    Files that never change are linked, the few others copied.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._copy = folder, folder.with_name(f".{folder.name}-frozen")
        shutil.rmtree(self._copy, ignore_errors=True)
        for path in (folder / "metadata").iterdir():
            target = self._copy / path.relative_to(folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            (os.link if path.suffix == ".avro" else shutil.copy2)(path, target)
        self._metadata = {path.name for path in (folder / "metadata").iterdir()}
        self._data = set((folder / "data").rglob("*"))

    def restore(self) -> None:
        """Remove what came since, and bring back what went."""
        for path in list((self._folder / "metadata").iterdir()):
            if path.name not in self._metadata or path.suffix != ".avro":
                path.unlink()
        for path in (self._copy / "metadata").iterdir():
            target = self._folder / "metadata" / path.name
            if not target.exists():
                (os.link if path.suffix == ".avro" else shutil.copy2)(path, target)
        for path in (self._folder / "data").rglob("*"):
            if path not in self._data and path.is_file():
                path.unlink()


def _timed(frozen: Frozen, work: Callable[[], None]) -> float:
    """Return the seconds of some work on a table as it was."""
    frozen.restore()
    with Stopwatch() as watch:
        work()
    return watch.seconds


# -- rows --------------------------------------------------------------------------------------------------------------


def _compaction(java: IcebergJava, ours: OurSpark, warehouse: Path, rows: int, runs: int) -> Iterator[Measurement]:
    table = _small_files(warehouse, rows)
    frozen = Frozen(warehouse / "db" / "small")
    sources = [Path(task.file.file_path.removeprefix("file://")) for task in table.scan().plan_files()]

    def run(plan: JobPlan) -> JobResult:
        note(f"    ours: {ours.run(plan.location)}")
        return JobResult.from_json(table.io.read(plan.result_location))

    def our(strategy: str) -> None:
        sort_by = (SORT_COLUMN,) if strategy == "sort" else ()
        request = CompactionRequest(strategy=strategy, sort_by=sort_by, options={"rewrite-all": True})
        result = compact(_load(warehouse, "small"), request, run=run)
        check_rows("our compaction", result.records, rows)
        note(f"    ours: {result.added_data_files} files")

    def javas(strategy: str) -> None:
        order = f", sort_order => '{SORT_COLUMN} asc nulls first'" if strategy == "sort" else ""
        (found,) = java.sql(
            f"call ref.system.rewrite_data_files(table => 'db.small', strategy => '{strategy}'{order}, "
            f"options => map('rewrite-all', 'true'))"
        )
        check_rows("Iceberg Java's files", found["rewritten_data_files_count"], SMALL_FILES)
        note(f"    Iceberg Java: {found['added_data_files_count']} files")

    with BareRewrite(sources, warehouse / "bare", rows) as bare:
        found = alternate(
            {
                "ours": lambda: _timed(frozen, lambda: our("binpack")),
                "java": lambda: _timed(frozen, lambda: javas("binpack")),
                "bare": bare.rewrite,
            },
            runs=runs,
        )
    what = f"bin-pack of {SMALL_FILES} files"
    yield Measurement(
        name=f"{what}, vs Iceberg Java, seconds", ours=found["ours"], peer=found["java"], goal=BINPACK_GOAL
    )
    yield Measurement(name=f"{what}, vs bare pyarrow, seconds", ours=found["ours"], peer=found["bare"], goal=BARE_GOAL)
    found = alternate(
        {
            "ours": lambda: _timed(frozen, lambda: our("sort")),
            "java": lambda: _timed(frozen, lambda: javas("sort")),
        },
        runs=runs,
    )
    yield Measurement(
        name=f"sort of {SMALL_FILES} files, vs Iceberg Java, seconds",
        ours=found["ours"],
        peer=found["java"],
        goal=SORT_GOAL,
    )


def _small_files(warehouse: Path, rows: int) -> Table:
    """Return a table of many small files with the rows of lineitem."""
    catalog = load_catalog("bench", type="hadoop", warehouse=warehouse.as_uri())
    properties = {"write.target-file-size-bytes": str(TARGET_BYTES), "write.parquet.compression-codec": "zstd"}
    table = Table.create(catalog, "db.small", schema=lineitem.COLUMNS, properties=properties)
    files = []
    for number in range(SMALL_FILES):
        count = rows // SMALL_FILES + (1 if number < rows % SMALL_FILES else 0)
        files += write_rows(table.io, table.metadata, lineitem.table(number, count), file_prefix=f"manual-{number}")
    table.commit(AppendFiles(table.io, files, table.commit_settings(), written_schema=table.schema()))
    note(f"  {len(files)} files, {sum(file.file_size_in_bytes for file in files) >> 20} MiB")
    return table


class BareRewrite:
    """Two processes, each of which reads half of the files and writes them as files of the target size."""

    def __init__(self, sources: Sequence[Path], folder: Path, rows: int) -> None:
        self._folder, self._rows = folder, rows
        self._work = [(sources[number::2], folder / f"{number}") for number in range(2)]
        # Started fresh: a fork would take the threads' locks of this process along.
        self._pool = multiprocessing.get_context("spawn").Pool(2)

    def __enter__(self) -> "BareRewrite":
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.terminate()
        self._pool.join()
        shutil.rmtree(self._folder, ignore_errors=True)

    def rewrite(self) -> float:
        """Rewrite all rows once and return the seconds."""
        shutil.rmtree(self._folder, ignore_errors=True)
        for _, target in self._work:
            target.mkdir(parents=True)
        with Stopwatch() as watch:
            rows = sum(self._pool.starmap(_rewrite, self._work))
        check_rows("bare pyarrow", rows, self._rows)
        return watch.seconds


def _rewrite(sources: Sequence[Path], folder: Path) -> int:
    """Write the rows of files into files of about the target size, a row group for as much as one is full of."""
    schema = pq.read_schema(sources[0])
    waiting: list[pa.Table] = []
    waiting_bytes = rows = 0
    for number, path in enumerate(sources):
        waiting.append(pq.ParquetFile(path).read(use_threads=False))
        waiting_bytes += path.stat().st_size
        if waiting_bytes >= TARGET_BYTES or number == len(sources) - 1:
            table = pa.concat_tables(waiting)
            target = folder / f"{number}.parquet"
            with pq.ParquetWriter(target, schema, compression="zstd", store_decimal_as_integer=True) as writer:
                writer.write_table(table, row_group_size=table.num_rows)
            rows += table.num_rows
            waiting, waiting_bytes = [], 0
    return rows


# -- metadata ----------------------------------------------------------------------------------------------------------


def _metadata(java: IcebergJava, warehouse: Path, runs: int) -> Iterator[Measurement]:
    folder = _big_table(warehouse)
    frozen = Frozen(folder)

    def our_expiry() -> None:
        request = ExpireRequest(older_than_ms=int(time.time() * 1000), retain_last=RETAINED)
        result = expire_snapshots(_load(warehouse, "big"), request)
        check_rows("our expiry", result.expired_snapshots, big_metadata.SNAPSHOTS - RETAINED)

    def javas_expiry() -> None:
        (found,) = java.sql(
            f"call ref.system.expire_snapshots(table => 'db.big', older_than => timestamp '{_now()}', "
            f"retain_last => {RETAINED})"
        )
        check_rows("Java's expiry", found["deleted_manifest_lists_count"], big_metadata.SNAPSHOTS - RETAINED)

    def our_manifests() -> None:
        result = rewrite_manifests(_load(warehouse, "big"))
        check_rows("our manifests", result.manifests_replaced, big_metadata.SNAPSHOTS)

    def javas_manifests() -> None:
        (found,) = java.sql("call ref.system.rewrite_manifests(table => 'db.big')")
        check_rows("Java's manifests", found["rewritten_manifests_count"], big_metadata.SNAPSHOTS)

    files = big_metadata.SNAPSHOTS * big_metadata.FILES_PER_SNAPSHOT
    yield _against_java(
        f"expiry of {big_metadata.SNAPSHOTS - RETAINED} of {big_metadata.SNAPSHOTS} snapshots of {files:,} files",
        (frozen, our_expiry, javas_expiry),
        runs,
    )
    yield _against_java(
        f"rewrite of {big_metadata.SNAPSHOTS} manifests of {files:,} files",
        (frozen, our_manifests, javas_manifests),
        runs,
    )
    yield _orphans(java, warehouse, folder, runs)


def _against_java(what: str, contest: tuple[Frozen, Callable[[], None], Callable[[], None]], runs: int) -> Measurement:
    frozen, ours, javas = contest
    found = alternate({"ours": lambda: _timed(frozen, ours), "java": lambda: _timed(frozen, javas)}, runs=runs)
    return Measurement(
        name=f"{what}, vs Iceberg Java, seconds", ours=found["ours"], peer=found["java"], goal=METADATA_GOAL
    )


def _orphans(java: IcebergJava, warehouse: Path, folder: Path, runs: int) -> Measurement:
    """Measure a dry run over the files of the table, young files that nobody knows, and some orphans."""
    _make_files(_load(warehouse, "big"), folder)
    frozen = Frozen(folder)

    def ours() -> None:
        result = remove_orphans(_load(warehouse, "big"), OrphanRequest(action="dry-run"))
        check_rows("our scan", result.orphan_files, ORPHANS)

    def javas() -> None:
        found = java.sql("call ref.system.remove_orphan_files(table => 'db.big', dry_run => true)")
        check_rows("Java's scan", len(found), ORPHANS)

    return _against_java(f"scan for orphans over {LISTED:,} listed files", (frozen, ours, javas), runs)


def _make_files(table: Table, folder: Path) -> None:
    note(f"  making {LISTED:,} empty files")
    known = [Path(task.file.file_path.removeprefix("file://")) for task in table.scan().plan_files()]
    places = sorted({path.parent for path in known})
    unknown = [places[number % len(places)] / f"other-{number}.parquet" for number in range(LISTED - len(known))]
    for place in places:
        place.mkdir(parents=True, exist_ok=True)
    for path in (*known, *unknown):
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o644))
    old = time.time() - OLD_SECONDS
    for path in unknown[:ORPHANS]:
        os.utime(path, (old, old))


def _big_table(warehouse: Path) -> Path:
    """Return the folder of the table of metadata alone, made in the place where a Hadoop catalog looks for it."""
    made = big_metadata.make(warehouse / "db")
    folder = made.parent.parent
    # The location that the metadata names stays: the catalog's name for it is a link.
    os.symlink(folder, warehouse / "db" / "big")
    made.rename(made.with_name("v1.metadata.json"))
    made.with_name("version-hint.text").write_text("1")
    (folder / "data").mkdir(exist_ok=True)
    return folder


def _now() -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime())
