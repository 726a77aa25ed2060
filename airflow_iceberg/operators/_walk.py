"""What the operators share that look at all files of a table: in this process, or on Spark when there are many."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_iceberg.operators._arguments import whole_number
from airflow_iceberg.operators._job import JobOperator, operation_of

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_iceberg.operations.file_inventory import Walker
    from airflow_iceberg.table import Table


class WalkOperator(JobOperator):
    """An operator that reads all manifests of a table, and may list its files: on Spark from `spark_from_files` on."""

    spark_from_files: int | str | None

    def open_walker(self, table: Table, context: Context) -> Walker:
        """Return what walks over the table's files; what a job would lack is found before anything is changed."""
        from airflow_iceberg.jobs.protocol.plan import Source
        from airflow_iceberg.operations.file_inventory import Walker, expected_files

        operation = operation_of(context)
        from_files = whole_number("spark_from_files", self.spark_from_files)
        if self.spark_conn_id is None:
            return Walker(table, operation=operation, spark_from_files=from_files)
        walker = Walker(
            table,
            run=lambda plan: self.run_job(table, plan, name=str(operation)),
            spark_from_files=from_files,
            operation=operation,
            try_number=int(context["ti"].try_number),
        )
        if walker.is_for_spark(expected_files(table.metadata)):
            self.open_backend(table, Source(kind="units", units=(table.location,)), name=str(operation))
        return walker
