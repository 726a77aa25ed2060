"""DAGs that change and maintain tables, whose first try is killed at one moment; see `test_killed_maintenance`.

One DAG and one table a moment, of the same name. The task installs its own death in its own process, once, and then
does the ordinary thing.
"""

from typing import Any

from airflow_iceberg.operators.compact import IcebergCompactOperator
from airflow_iceberg.operators.delete import IcebergDeleteOperator
from airflow_iceberg.operators.expire_snapshots import IcebergExpireSnapshotsOperator
from airflow_iceberg.operators.overwrite import IcebergOverwriteOperator
from airflow_iceberg.operators.remove_orphan_files import IcebergRemoveOrphanFilesOperator
from airflow_iceberg.operators.rewrite_manifests import IcebergRewriteManifestsOperator
from tests.airflow.deaths import FOLDER, after, before, dag, is_first


def install(moment: str) -> None:
    """Arrange for this process to be killed at a moment."""
    from airflow_iceberg.catalogs.sql.catalog import SqlCatalog
    from airflow_iceberg.operations import quarantine
    from airflow_iceberg.storage.stores.local import LocalStore

    if moment == "before_the_swap":
        before(SqlCatalog, "swap_pointer")
    elif moment == "after_the_swap":
        after(SqlCatalog, "swap_pointer")
    elif moment == "after_a_removal":
        after(LocalStore, "_delete_file")
    elif moment == "after_a_move":
        after(quarantine, "_move")


def killed_once(operator: type[Any], moment: str, **arguments: Any) -> None:
    name = f"{operator.__name__.removeprefix('Iceberg').removesuffix('Operator').lower()}_{moment}"

    class KilledOnce(operator):
        """The operator, but for the first try that gets here, which is killed."""

        def execute(self, context: Any) -> Any:
            if is_first(name, context["ti"].try_number):
                install(moment)
            return super().execute(context)

    with dag(name) as made:
        KilledOnce(task_id="task", table=f"s.{name}", **arguments)
    globals()[name] = made


for at in ("before_the_swap", "after_the_swap"):
    killed_once(
        IcebergOverwriteOperator,
        at,
        files=f"{FOLDER}/source/*.parquet",
        overwrite_filter="id in (1, 2, 100)",
        spark_conn_id=None,
    )
    killed_once(IcebergDeleteOperator, at, predicate="id in (1, 12)", mode="merge-on-read", spark_conn_id=None)
    killed_once(IcebergCompactOperator, at, options={"rewrite-all": True}, spark_conn_id=None)
    killed_once(IcebergRewriteManifestsOperator, at)
for at in ("after_the_swap", "after_a_removal"):
    killed_once(IcebergExpireSnapshotsOperator, at, older_than="2100-01-01T00:00:00Z")
killed_once(IcebergRemoveOrphanFilesOperator, "after_a_move")
