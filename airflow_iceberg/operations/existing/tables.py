"""What the class `Table` has for existing files and tables: `add_files`; nothing is decided here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow_iceberg.commit.open_table import OpenTable
from airflow_iceberg.commit.operation_key import OperationKey
from airflow_iceberg.commit.write_result import WriteResult
from airflow_iceberg.format.snapshots import MAIN_BRANCH
from airflow_iceberg.operations.add_files import AddFilesRequest, add_files
from airflow_iceberg.operations.work import Work


class ExistingTables(OpenTable):
    """Methods of a table by which existing files and tables come in."""

    def add_files(
        self,
        file_paths: Sequence[str] | None = None,
        *,
        source: str | None = None,
        partition_filter: Mapping[str, Any] | None = None,
        branch: str = MAIN_BRANCH,
        snapshot_properties: Mapping[str, str] | None = None,
        check_duplicate_files: bool = True,
        operation_key: OperationKey | None = None,
    ) -> WriteResult:
        """Add existing Parquet, ORC and Avro files to the table, where they are, by their footers.

        From then on they are files of the table: an expiry deletes them if they lie in a location of its own.

        Args:
            file_paths: the locations of the files; or
            source: a folder, all files below it. Folders `name=value` give the values of partition fields.
            partition_filter: `{"ds": "2026-01-01"}`: only those files of `source`.
            check_duplicate_files: whether a file that the branch has already is an error.

        Raises:
            NotFoundError, AlreadyExistsError, InvalidInputError, FormatError, UnsupportedError: see
                `operations.add_files`; nothing was committed.
        """
        request = AddFilesRequest(
            files=file_paths,
            source=source,
            partition_filter=partition_filter,
            branch=branch,
            on_rerun="append",
            check_duplicate_files=check_duplicate_files,
            snapshot_properties={} if snapshot_properties is None else snapshot_properties,
        )
        return add_files(Work(self, operation_key=operation_key), request)
