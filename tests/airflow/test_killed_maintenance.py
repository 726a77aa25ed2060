"""Operators that change and maintain tables, killed under a real scheduler with LocalExecutor; see `test_killed_tasks`.

A few moments each; every step is in `test_killed_at_every_step`. All DAGs start by themselves when Airflow does.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_iceberg.commit.operation_key import OPERATION_KEY
from airflow_iceberg.operations.quarantine import quarantines, restore_quarantine
from airflow_iceberg.operations.remove_orphan_files import known_files
from airflow_iceberg.operations.work import Work
from tests.airflow.conftest import Lake, airflow_of
from tests.airflow.live import LiveAirflow

SWAP = ("before_the_swap", "after_the_swap")
CHANGES = {"overwrite": [0, *range(3, 20), 100], "delete": [n for n in range(20) if n not in (1, 12)]}
MAINTENANCE = ("compact", "rewritemanifests")
EXPIRY = ("expiresnapshots_after_the_swap", "expiresnapshots_after_a_removal")
CLEANING = "removeorphanfiles_after_a_move"
LITTER = ("data/x.parquet", "data/y.parquet", "data/z.parquet")

# With the services, `test_killed_at_every_step` kills the same operators, without a scheduler.
pytestmark = [pytest.mark.slow, pytest.mark.services, pytest.mark.long]


def folder(lake: Lake, name: str) -> Path:
    return Path(lake.load(name).location.removeprefix("file://"))


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    made = Lake(tmp_path_factory.mktemp("lake"))
    made.write_file("new.parquet", [100])
    names = [f"{kind}_{moment}" for kind in (*CHANGES, *MAINTENANCE) for moment in SWAP]
    for name in (*names, *EXPIRY, CLEANING):
        made.create(f"s.{name}", properties={"format-version": "3", "commit.manifest-merge.enabled": "false"})
        for start in (0, 10):
            made.append(list(range(start, start + 10)), f"s.{name}")
    for name in EXPIRY:
        table = made.load(f"s.{name}")
        table.overwrite(table.scan().to_arrow())
    for name in LITTER:
        litter = folder(made, f"s.{CLEANING}") / name
        litter.write_bytes(name.encode())
        os.utime(litter, (1_700_000_000, 1_700_000_000))
    return made


@pytest.fixture(scope="module")
def airflow(lake: Lake) -> Iterator[LiveAirflow]:
    with airflow_of(lake, "dags_of_maintenance", {}) as running:
        yield running


def result_of(airflow: LiveAirflow, lake: Lake, dag_id: str) -> dict[str, Any]:
    """Wait for the run of a DAG, whose first try was killed, and return what its task returned."""
    run_id, (task,) = airflow.ended(dag_id)
    assert task["try_number"] > int((lake.folder / f"killed-{dag_id}").read_text())
    found: dict[str, Any] = airflow.xcom(dag_id, run_id, "task")
    return found


def own(lake: Lake, dag_id: str) -> list[Any]:
    return [s for s in lake.load(f"s.{dag_id}").snapshots() if OPERATION_KEY in s.summary]


class TestAChange:
    """Wherever the first try dies, the second leaves it done once."""

    @pytest.mark.parametrize("kind", CHANGES)
    @pytest.mark.parametrize("moment", SWAP)
    def test_is_made_once(self, kind, moment, lake, airflow):
        dag_id = f"{kind}_{moment}"
        result = result_of(airflow, lake, dag_id)
        assert result["outcome"] == ("found" if moment == "after_the_swap" else "committed")
        (snapshot,) = own(lake, dag_id)
        assert result["snapshot_id"] == str(snapshot.snapshot_id)
        assert lake.ids(f"s.{dag_id}") == CHANGES[kind]

    @pytest.mark.parametrize("kind", CHANGES)
    def test_that_is_cleared_is_not_made_twice(self, kind, lake, airflow):
        dag_id = f"{kind}_after_the_swap"
        result_of(airflow, lake, dag_id)
        airflow.clear(dag_id, airflow.runs(dag_id)[0]["dag_run_id"])
        result = result_of(airflow, lake, dag_id)
        assert result["outcome"] == ("committed" if kind == "overwrite" else "nothing")
        assert lake.ids(f"s.{dag_id}") == CHANGES[kind]


class TestMaintenance:
    """It is finished by the next try, and no row changes."""

    @pytest.mark.parametrize("kind", MAINTENANCE)
    @pytest.mark.parametrize("moment", SWAP)
    def test_that_rewrites(self, kind, moment, lake, airflow):
        dag_id = f"{kind}_{moment}"
        result = result_of(airflow, lake, dag_id)
        assert result["outcome"] == ("found" if moment == "after_the_swap" else "committed")
        assert len(own(lake, dag_id)) == 1
        assert lake.ids(f"s.{dag_id}") == list(range(20))

    @pytest.mark.parametrize("dag_id", EXPIRY)
    def test_that_removes_files(self, dag_id, lake, airflow):
        assert result_of(airflow, lake, dag_id)["outcome"] == "finished"
        table = lake.load(f"s.{dag_id}")
        assert len(table.snapshots()) == 1
        known = known_files(table)
        there = [status.location for status in table.io.list(f"{table.location}/data")]
        there += [s.location for s in table.io.list(f"{table.location}/metadata") if s.location.endswith(".avro")]
        assert not [path for path in there if known.classify(path) == "orphan"]
        assert lake.ids(f"s.{dag_id}") == list(range(20))

    def test_that_puts_orphans_aside(self, lake, airflow):
        result = result_of(airflow, lake, CLEANING)
        table, root = lake.load(f"s.{CLEANING}"), folder(lake, f"s.{CLEANING}")
        assert (result["outcome"], result["orphan_files"]) == ("committed", len(LITTER))
        assert quarantines(table) == (result["quarantine"],)
        assert not [name for name in LITTER if (root / name).exists()]
        restore_quarantine(Work(table), result["quarantine"])
        assert [(root / name).read_bytes() for name in LITTER] == [name.encode() for name in LITTER]
