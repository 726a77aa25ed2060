"""A folder becomes a table under `dag.test()`: a snapshot of it, or itself. Hive's tables are in `tests.catalogs`."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_iceberg.operators import IcebergMigrateTableOperator, IcebergSnapshotTableOperator
from tests.airflow.conftest import Lake, dying, operators

snapshot = operators(IcebergSnapshotTableOperator, task_id="make", table="other.t")
migrate = operators(IcebergMigrateTableOperator, task_id="make", table="other.t")
BOTH = pytest.mark.parametrize("kind", [IcebergSnapshotTableOperator, IcebergMigrateTableOperator])


@pytest.fixture
def source(lake: Lake) -> Path:
    folder = lake.folder / "warehouse" / "old"
    add_file(folder, "2026-01-01", 1)
    add_file(folder, "2026-01-02", 2)
    return folder


def add_file(folder: Path, day: str, number: int) -> None:
    path = folder / f"day={day}" / "0.parquet"
    path.parent.mkdir(parents=True)
    pq.write_table(pa.table({"id": pa.array([number], pa.int64())}), path)


class TestATableOfAFolder:
    """Made once, also by a retry; a clear reads the source of a snapshot again, and leaves a migrated table."""

    @pytest.mark.services
    @BOTH
    def test_is_made(self, lake: Lake, source, kind, new_dag, run_dag):
        with new_dag(params={"folder": str(source)}) as dag:
            kind(task_id="make", table="other.t", source="{{ params.folder }}", properties={"owner": "me"})
        result = run_dag(dag).result("make")
        assert (result["outcome"], result["added_data_files"], result["added_records"]) == ("committed", 2, 2)
        table = lake.load("other.t")
        assert (lake.ids("other.t"), table.properties["owner"]) == ([1, 2], "me")
        assert table.current_snapshot().summary["airflow.operation-key"] == result["operation_key"]
        is_migrated = kind is IcebergMigrateTableOperator
        assert table.location == (source.as_uri() if is_migrated else table.location)
        assert ("gc.enabled" in table.properties, "migrated" in table.properties) == (not is_migrated, is_migrated)

    @pytest.mark.services
    @BOTH
    def test_a_retry_finds_it(self, lake: Lake, source, kind, run_task):
        mortal = dying(kind, lambda: lake.append([3], "other.t"))
        run = run_task(mortal, task_id="make", table="other.t", source=str(source), retries=1)
        assert (run.result("make")["outcome"], lake.ids("other.t")) == ("found", [1, 2, 3])

    @pytest.mark.services
    @BOTH
    def test_a_cleared_task(self, lake: Lake, source, kind, new_dag, run_dag, clear):
        with new_dag() as dag:
            kind(task_id="make", table="other.t", source=str(source))
        run = run_dag(dag)
        lake.load("other.t").append(pa.table({"id": pa.array([9], pa.int64())}))
        add_file(source, "2026-01-03", 3)
        clear(dag, run)
        assert lake.ids("other.t") == ([1, 2, 9] if kind is IcebergMigrateTableOperator else [1, 2, 3, 9])

    @pytest.mark.services
    @BOTH
    def test_bad_sources(self, lake: Lake, source, kind, run_task):
        make = operators(kind, task_id="make", table="other.t")
        assert "there are no files below" in run_task(make, source=str(source / "none")).refusal
        why = "column 'id' is int64 in the file, expected string"
        assert why in run_task(make, source=str(source), schema={"id": "string", "day": "date"}).refusal
        assert not lake.catalog.table_exists("other.t")

    @pytest.mark.services
    def test_a_hive_table_needs_its_catalog(self, lake: Lake, run_task):
        assert "has Iceberg tables only" in run_task(migrate).refusal
        assert "has Iceberg tables only" in run_task(snapshot, source="db.old").refusal
