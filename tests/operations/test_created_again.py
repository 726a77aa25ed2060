"""A DAG run that was deleted and created again with its id, after its snapshots have expired: its rows are there once.

A first try knows a time before which no run of its id can have begun. If the history of the branch reaches back to it,
nothing else is read; if not, the names of the live files tell.
"""

import io
import logging
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_iceberg.commit.earlier_epochs import EarlierEpochs
from airflow_iceberg.commit.operation_key import OperationKey
from airflow_iceberg.commit.settings import now_ms
from airflow_iceberg.errors import IncompatibleChangeError
from airflow_iceberg.operations.add_files import AddFilesRequest, add_files
from airflow_iceberg.operations.compact import CompactRequest, compact
from airflow_iceberg.operations.expire_snapshots import ExpireSnapshotsRequest, expire_snapshots
from airflow_iceberg.operations.work import Work
from airflow_iceberg.table import Table
from tests.operations.test_changes_input import LATER_MS
from tests.operations.test_changes_input import Lake as Inputs
from tests.support.builders import job_work
from tests.support.memory import MemoryCatalog

DAY_MS = 24 * 60 * 60 * 1000
DELETED_RUN = "was there before, and was deleted: its rows may be in file"
UNTOLD = 0
"""What a run's id tells that is a name."""


class Lake:
    """The table `db.t`, to which tasks of runs append."""

    def __init__(self, version: int = 2) -> None:
        self.catalog = MemoryCatalog()
        Table.create(self.catalog, "db.t", schema={"id": "long"}, properties={"format-version": str(version)})
        self.epoch = 0

    def table(self) -> Table:
        return Table.load(self.catalog, "db.t")

    def key(self, earliest_ms: int | None, run_id: str = "r", **more: Any) -> OperationKey:
        """Return the key of the first try in a run that has just been created, and started."""
        self.epoch += 1
        now = now_ms()
        return OperationKey(
            dag_id="d",
            run_id=run_id,
            task_id="t",
            installation="i",
            epoch=self.epoch * 10**8,
            try_number=1,
            is_cleared=False,
            run_after_ms=now,
            started_ms=now,
            earliest_ms=earliest_ms,
            **more,
        )

    def write(self, key: OperationKey, *ids: int, **more: Any) -> str:
        rows = pa.table({"id": pa.array(ids, pa.int64())})
        return str(self.table().append(rows, operation_key=key, **{"on_rerun": "replace", **more}).outcome)

    def other(self, *ids: int) -> None:
        """Append rows of another run."""
        self.write(self.key(None, f"other {self.epoch}"), *ids)

    def ids(self) -> list[int]:
        return sorted(self.table().scan().to_arrow()["id"].to_pylist())

    def compact(self) -> None:
        compact(job_work(self.table()), CompactRequest(options={"rewrite-all": "true"}))

    def expire(self) -> None:
        """Leave the newest snapshot alone."""
        expire_snapshots(Work(self.table()), ExpireSnapshotsRequest(older_than_ms=LATER_MS, retain_last=1))


def yesterday() -> int:
    return now_ms() - DAY_MS


@pytest.fixture(params=[2, pytest.param(1, marks=pytest.mark.costly), pytest.param(3, marks=pytest.mark.costly)])
def lake(request) -> Lake:
    return Lake(request.param)


@pytest.fixture
def reads(monkeypatch) -> list[int]:
    """Collects the snapshots whose manifests are read to find rows of earlier runs."""
    found: list[int] = []
    live = EarlierEpochs._live

    def note(self: EarlierEpochs, head: Any) -> Any:
        found.append(head.snapshot_id)
        return live(self, head)

    monkeypatch.setattr(EarlierEpochs, "_live", note)
    return found


class TestItsRowsAreReplaced:
    """By the names of its files, as after a clear."""

    @pytest.mark.parametrize("earliest", [yesterday, lambda: UNTOLD])
    def test_an_append(self, earliest: Callable[[], int], lake: Lake) -> None:
        lake.write(lake.key(earliest()), 1, 2)
        lake.other(9)
        lake.expire()
        lake.write(lake.key(earliest()), 1, 3)
        assert lake.ids() == [1, 3, 9]

    def test_also_twice(self, lake: Lake) -> None:
        for number in range(3):
            lake.write(lake.key(UNTOLD), number)
            lake.other(9)
            lake.expire()
        assert lake.ids() == [2, 9, 9, 9]

    @pytest.mark.parametrize("method", ["overwrite", "dynamic_partition_overwrite"])
    def test_an_overwrite(self, method: str, lake: Lake) -> None:
        lake.write(lake.key(UNTOLD), 1)
        lake.other(9)
        lake.expire()
        more = {"overwrite_filter": "id = 5"} if method == "overwrite" else {}
        rows = pa.table({"id": pa.array([5], pa.int64())})
        getattr(lake.table(), method)(rows, operation_key=lake.key(UNTOLD), **more)
        assert lake.ids() == ([5, 9] if method == "overwrite" else [5])

    def test_a_part_that_is_in_the_history(self, lake: Lake) -> None:
        """The run was created twice: the rows of one are known by its snapshot, those of the other by their names."""
        lake.write(lake.key(UNTOLD), 1)
        lake.other(8)
        lake.expire()
        lake.write(lake.key(UNTOLD), 2, on_rerun="append")
        assert lake.ids() == [1, 2, 8]
        lake.write(lake.key(UNTOLD), 3)
        assert lake.ids() == [3, 8]

    def test_with_hashed_paths_without_partitions(self) -> None:
        """There a hash is the beginning of a file's name."""
        lake = Lake()
        names = ("write.object-storage.enabled", "write.object-storage.partitioned-paths")
        lake.table().alter([{"set_properties": dict(zip(names, ("true", "false"), strict=True))}])
        lake.write(lake.key(UNTOLD), 1)
        lake.other(9)
        lake.expire()
        lake.write(lake.key(UNTOLD), 2)
        assert lake.ids() == [2, 9]

    def test_on_a_branch_that_was_created_later(self, lake: Lake) -> None:
        lake.write(lake.key(UNTOLD), 1)
        lake.other(9)
        lake.expire()
        lake.table().create_branch("b")
        lake.write(lake.key(UNTOLD), 2, branch="b")
        assert sorted(lake.table().scan(ref="b").to_arrow()["id"].to_pylist()) == [2, 9]
        assert lake.ids() == [1, 9]

    @pytest.mark.parametrize(
        ("on_rerun", "outcome", "there"), [("skip", "skipped", [1, 9]), ("append", "committed", [1, 1, 9])]
    )
    def test_or_what_its_author_says(self, on_rerun: Any, outcome: str, there: list[int], lake: Lake) -> None:
        lake.write(lake.key(UNTOLD), 1, on_rerun=on_rerun)
        lake.other(9)
        lake.expire()
        assert lake.write(lake.key(UNTOLD), 1, on_rerun=on_rerun) == outcome
        assert lake.ids() == there

    def test_work_that_is_skipped_needs_no_other_file(self, lake: Lake) -> None:
        """A younger file of another program may hold rows of anybody: none is taken out."""
        lake.write(lake.key(yesterday()), 1)
        lake.table().append(pa.table({"id": pa.array([8], pa.int64())}))
        lake.other(9)
        lake.expire()
        assert lake.write(lake.key(yesterday()), 1, on_rerun="skip") == "skipped"
        assert lake.ids() == [1, 8, 9]

    def test_an_overwrite_of_its_own_day_beside_younger_files(self, lake: Lake) -> None:
        """Its rows are replaced wherever they are: rows that another program has written since are like them, too."""
        lake.write(lake.key(yesterday()), 1)
        lake.table().append(pa.table({"id": pa.array([1, 8], pa.int64())}))
        lake.other(9)
        lake.expire()
        rows = pa.table({"id": pa.array([1], pa.int64())})
        lake.table().overwrite(rows, "id = 1", operation_key=lake.key(yesterday()))
        assert lake.ids() == [1, 8, 9]

    def test_that_were_in_the_history_when_its_job_began(self, lake: Lake) -> None:
        lake.other(8)
        begun = now_ms() + 1
        lake.write(lake.key(begun), 1)
        table, key = lake.table(), lake.key(begun)
        lake.other(9)
        lake.expire()
        table.append(pa.table({"id": pa.array([1], pa.int64())}), operation_key=key, on_rerun="replace")
        assert lake.ids() == [1, 8, 9]

    def test_not_those_of_other_runs(self, lake: Lake) -> None:
        lake.write(lake.key(UNTOLD, "other"), 1)
        lake.other(9)
        lake.expire()
        lake.write(lake.key(UNTOLD), 2)
        assert lake.ids() == [1, 2, 9]

    def test_its_range_of_changes_is_not_known_any_more(self) -> None:
        """A run that came after it has moved the watermark: another range would take the place of its rows."""
        lake = Inputs()

        def key(run: str, epoch: int) -> OperationKey:
            more = {"dag_id": "d", "task_id": "t", "installation": "i", "try_number": 1, "is_cleared": False}
            return OperationKey(run_id=run, epoch=epoch * 10**8, earliest_ms=UNTOLD, started_ms=now_ms(), **more)

        for number, run in enumerate(("r1", "r2")):
            lake.add(number)
            lake.run(key(run, 1))
        lake.add(8, to="db.t")
        lake.expire("db.t")
        lake.add(3)
        with pytest.raises(IncompatibleChangeError, match="it is not known which changes it is to read again"):
            lake.run(key("r1", 2))
        assert lake.ids() == [0, 1, 8]


class TestTheUsualRun:
    """The history reaches back to before a run of its id can have begun: no manifest is read."""

    @pytest.mark.parametrize("late_ms", [0, 1000])
    def test_of_a_table_whose_snapshots_expire(self, late_ms: int, lake: Lake, reads: list[int]) -> None:
        lake.other(8)
        lake.compact()
        lake.other(9)
        lake.expire()
        lake.write(lake.key(now_ms() + 1 + late_ms), 1)
        assert (lake.ids(), reads) == ([1, 8, 9], [])

    @pytest.mark.parametrize("earliest", [UNTOLD, 1])
    def test_of_a_table_whose_snapshots_are_all_there(self, earliest: int, lake: Lake, reads: list[int]) -> None:
        lake.other(8)
        lake.other(9)
        lake.write(lake.key(earliest), 1)
        assert (lake.ids(), reads) == ([1, 8, 9], [])

    def test_a_key_of_another_program(self, lake: Lake, reads: list[int]) -> None:
        lake.other(8)
        lake.other(9)
        lake.expire()
        lake.write(lake.key(None), 1)
        assert (lake.ids(), reads) == ([1, 8, 9], [])

    def test_an_expiry_while_its_job_runs(self, lake: Lake) -> None:
        """What was there when the work began tells: a job may take longer than snapshots are kept."""
        lake.other(8)
        lake.other(9)
        table, key = lake.table(), lake.key(now_ms() + 1)
        lake.compact()
        lake.expire()
        table.append(pa.table({"id": pa.array([1], pa.int64())}), operation_key=key, on_rerun="replace")
        assert lake.ids() == [1, 8, 9]


class TestRewrittenFiles:
    """Where files have lost their names, nobody knows: each backfill of a table that is maintained comes here."""

    @pytest.fixture
    def compacted(self, lake: Lake) -> Lake:
        lake.write(lake.key(yesterday()), 1)
        lake.other(9)
        lake.compact()
        lake.other(8)
        lake.expire()
        return lake

    @pytest.mark.parametrize("id_tells_time", [True, False])
    def test_it_is_told(self, id_tells_time: bool, compacted: Lake, caplog) -> None:
        """As a warning, if the run is late; each run whose id is a name would be warned."""
        with caplog.at_level(logging.INFO):
            compacted.write(compacted.key(yesterday() if id_tells_time else UNTOLD, "new"), 2)
        assert compacted.ids() == [1, 2, 8, 9]
        (level,) = [one.levelname for one in caplog.records if DELETED_RUN in one.getMessage()]
        assert level == ("WARNING" if id_tells_time else "INFO")

    def test_not_if_its_author_says_that_it_is_new(self, compacted: Lake, caplog) -> None:
        with caplog.at_level(logging.INFO):
            compacted.write(compacted.key(yesterday(), "new", on_removed="keep"), 2)
        assert DELETED_RUN not in caplog.text

    def test_its_clears_are_replaced_as_ever(self, compacted: Lake) -> None:
        compacted.write(compacted.key(yesterday(), "new"), 2)
        compacted.write(compacted.key(yesterday(), "new"), 3)
        assert compacted.ids() == [1, 3, 8, 9]

    def test_also_if_what_it_looks_at_expires_meanwhile(self, lake: Lake, caplog) -> None:
        """The manifests of the state that was loaded are gone: the commit looks at those of the newest one."""
        lake.other(8)
        lake.other(9)
        lake.expire()
        table, rows = lake.table(), pa.table({"id": pa.array([1], pa.int64())})
        lake.compact()
        lake.expire()
        table.append(rows, operation_key=lake.key(yesterday()), on_rerun="replace")
        assert lake.ids() == [1, 8, 9]
        assert DELETED_RUN in caplog.text

    def test_an_overwrite_of_these_files_is_not_told(self, compacted: Lake, caplog) -> None:
        rows = pa.table({"id": pa.array([1, 5], pa.int64())})
        compacted.table().overwrite(rows, operation_key=compacted.key(yesterday()))
        assert compacted.ids() == [1, 5]
        assert DELETED_RUN not in caplog.text

    @pytest.mark.parametrize("checks", [True, False])
    def test_an_overwrite_of_its_own_day(self, checks: bool, compacted: Lake, caplog) -> None:
        """Its rows satisfy the filter, as those of a deleted run did, if that is checked: none is left."""
        rows = pa.table({"id": pa.array([1, 1], pa.int64())})
        compacted.table().overwrite(rows, "id = 1", check_filter=checks, operation_key=compacted.key(yesterday()))
        assert compacted.ids() == [1, 1, 8, 9]
        assert (DELETED_RUN in caplog.text) == (not checks)

    def test_an_existing_file(self, compacted: Lake, caplog) -> None:
        table = compacted.table()
        path = f"{table.location}/elsewhere.parquet"
        table.io.create(path, _parquet(5))
        work = Work(table, operation_key=compacted.key(yesterday()), try_number=1)
        add_files(work, AddFilesRequest(files=[path]))
        assert DELETED_RUN in caplog.text

    def test_a_late_run_of_a_table_without_such_files(self, lake: Lake) -> None:
        lake.write(lake.key(yesterday(), "other"), 1)
        lake.other(9)
        lake.expire()
        lake.write(lake.key(yesterday()), 2)
        assert lake.ids() == [1, 2, 9]

    def test_rows_beside_some_that_are_known(self, lake: Lake) -> None:
        """A compaction may have taken a part of the rows."""
        lake.write(lake.key(UNTOLD), 1)
        lake.other(9)
        lake.table().delete("id = 9")
        lake.other(7)
        lake.expire()
        lake.write(lake.key(UNTOLD), 2)
        assert lake.ids() == [2, 7]


def _parquet(*ids: int) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({"id": pa.array(ids, pa.int64())}), sink)
    return sink.getvalue()
