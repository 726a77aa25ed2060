"""A table whose writes belong to the task that runs: `IcebergHook().task_table("sales.orders")`.

Each write of the task has an operation key of its own, which is the task's with the name of the write. By it the write
is found after a kill, and replaced after a clear. Not here: what a key is (`hooks.task_key`), the writes (`table`).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from airflow.providers.common.compat.sdk import get_hook_lineage_collector

from airflow_iceberg.assets import SCHEME, check_partition_keys, tell_write
from airflow_iceberg.commit.operation_key import OnRerun
from airflow_iceberg.commit.write_result import Outcome, WriteResult
from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.hooks.own_changes import CHANGES_NO_ROWS, OwnChanges, ResultT
from airflow_iceberg.hooks.own_writes import check_try_of_found, writes_of
from airflow_iceberg.hooks.task_key import as_said, operation_key_of
from airflow_iceberg.retries import function_failures

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_iceberg.catalogs.base import Catalog

log = logging.getLogger(__name__)

# Threads of a function may write at the same time; the events of a task are lists that each write reads and changes.
_telling = threading.Lock()


def running_context() -> Context:
    """Return the context of the task that runs.

    Raises:
        InvalidInputError: none does.
    """
    from airflow.sdk import get_current_context

    try:
        return get_current_context()
    except RuntimeError as error:
        raise InvalidInputError(
            "task_table() is for the function of a running task, and none runs here; use load_table(), or give it the "
            "context of a task; a function of @task.virtualenv, external_python or docker runs in a process without "
            "one: return its rows from there, and write them in a @task"
        ) from error


class TaskTable(OwnChanges):
    """A table whose writes are committed exactly once by the task that runs; made by `IcebergHook.task_table`.

    Its writes take the arguments of those of `Table`, and:

    - `name`, the name of the write. Give one to each write of a task that makes several: by it a retry finds the write
      that an earlier try has committed, in whatever order it makes them. Without one, writes are told apart by their
      kind and order for each table: `append-1`, `append-2`, `merge-1`.
    - `on_rerun` of appends: what happens after a clear to the rows of the run before: `"replace"` replaces them in the
      same commit, `"append"` keeps them, `"skip"` leaves it at them.

    A write that fails says what happened and what to do in the task's log, as operators do, and raises its own error,
    which the function may catch. Not caught, an error that no retry can mend (bad input, a missing permission) fails
    the task at once, with a retry policy and without one: it is also an `AirflowFailException`.
    """

    _context: Context
    _conn_id: str
    _asset_events: bool
    _partition_keys: str
    _on_removed: str | None = None
    write_key: str | None = None

    @classmethod
    def bound(
        cls,
        catalog: Catalog,
        name: str,
        context: Context,
        *,
        iceberg_conn_id: str,
        asset_events: bool,
        partition_keys: str,
        write_key: str | int | None = None,
        on_removed: str | None = None,
    ) -> TaskTable:
        """Load a table, and bind it to a task, as `IcebergHook.task_table` does.

        Args:
            catalog, name: where the table is, and its namespace and name.
            context: the context of the task.
            iceberg_conn_id, asset_events, partition_keys, write_key, on_removed: as of `IcebergHook.task_table`.
        """
        check_partition_keys(partition_keys)
        made = cls.load(catalog, name)
        assert isinstance(made, cls)
        made._context, made._conn_id = context, iceberg_conn_id
        made._asset_events, made._partition_keys = asset_events, partition_keys
        made.write_key = as_said(operation_key_of(context), write_key, on_removed).write_key
        made._on_removed = on_removed
        return made

    def append(
        self, rows: Any, *, name: str | None = None, on_rerun: OnRerun = "replace", **options: Any
    ) -> WriteResult:
        """Append rows; see `Table.append`.

        Args:
            rows: an Arrow table, record batch or reader.
            name, on_rerun: the name of the write, and what a clear does with its rows: see above.
            options: the other arguments of `Table.append`, by name.
        """
        return self._write("append", name, super().append, rows, on_rerun=on_rerun, **options)

    def overwrite(
        self, rows: Any, overwrite_filter: Any = None, *, name: str | None = None, **options: Any
    ) -> WriteResult:
        """Replace rows by others; see `Table.overwrite`.

        Args:
            rows: an Arrow table, record batch or reader.
            overwrite_filter: SQL that selects what is replaced; None for the whole table.
            name: the name of the write, see above.
            options: the other arguments of `Table.overwrite`, by name.
        """
        return self._write("overwrite", name, super().overwrite, rows, overwrite_filter, **options)

    def dynamic_partition_overwrite(self, rows: Any, *, name: str | None = None, **options: Any) -> WriteResult:
        """Replace the partitions that rows are in; see `Table.dynamic_partition_overwrite`.

        Args:
            rows: an Arrow table, record batch or reader.
            name: the name of the write, see above.
            options: the other arguments of `Table.dynamic_partition_overwrite`, by name.
        """
        return self._write("overwrite", name, super().dynamic_partition_overwrite, rows, **options)

    def delete(self, predicate: Any, *, name: str | None = None, **options: Any) -> WriteResult:
        """Delete rows; see `Table.delete`.

        Args:
            predicate: SQL that selects them.
            name: the name of the write, see above.
            options: the other arguments of `Table.delete`, by name.
        """
        return self._write("delete", name, super().delete, predicate, **options)

    def merge(self, rows: Any, on: Any, clauses: Any, *, name: str | None = None, **options: Any) -> WriteResult:
        """Merge rows into the table; see `Table.merge`.

        Args:
            rows: an Arrow table, record batch or reader.
            on: the columns that identify a row, or SQL that says which rows belong together:
                `target.id = source.id`.
            clauses: what happens to rows that match, and to those that do not.
            name: the name of the write, see above.
            options: the other arguments of `Table.merge`, by name.
        """
        return self._write("merge", name, super().merge, rows, on, clauses, **options)

    def upsert(
        self, df: Any, join_cols: Sequence[str] | None = None, *args: Any, name: str | None = None, **options: Any
    ) -> WriteResult:
        """Update the rows that the table has, and add the others; see `Table.upsert`.

        Args:
            df: an Arrow table.
            join_cols: the columns that identify a row; the table's identifier fields if left out.
            args: further arguments of `Table.upsert`, in its order.
            name: the name of the write, see above.
            options: the other arguments of `Table.upsert`, by name.
        """
        return self._write("upsert", name, super().upsert, df, join_cols, *args, **options)

    def update(
        self, set: Mapping[str, str], where: str | None = None, *, name: str | None = None, **options: Any
    ) -> WriteResult:
        """Give rows new values; see `Table.update`.

        Args:
            set: columns and SQL of their new values, `{"amount": "amount * 2"}`.
            where: SQL that selects the rows; None for all.
            name: the name of the write, see above.
            options: the other arguments of `Table.update`, by name.
        """
        return self._write("update", name, super().update, set, where, **options)

    def _write(self, verb: str, name: str | None, write: Callable[..., ResultT], *args: Any, **options: Any) -> ResultT:
        with function_failures():
            return self._written(verb, name, write, *args, **options)

    def _written(
        self, verb: str, name: str | None, write: Callable[..., ResultT], *args: Any, **options: Any
    ) -> ResultT:
        if "operation_key" in options:
            raise InvalidInputError("a table of a task makes the operation keys of its writes; set name instead")
        with writes_of(self._context).named(self._context, self, verb, name) as named:
            key = as_said(operation_key_of(self._context), self.write_key, self._on_removed)
            key = replace(key, write=named, older_epoch=None)
            result = write(*args, operation_key=key, **options)
            if name is None and isinstance(result, WriteResult) and result.outcome is Outcome.FOUND:
                check_try_of_found(self._context, self, result.snapshot_id, named)
        if isinstance(result, WriteResult) and verb in ("append", "overwrite"):
            _warn_of_other_rows(result, named, args[0])
        get_hook_lineage_collector().add_output_asset(
            context=cast(Any, self), scheme=SCHEME, asset_kwargs={"table": self.name, "iceberg_conn_id": self._conn_id}
        )
        if self._asset_events:
            with _telling:
                tell_write(
                    self._context,
                    self,
                    result,
                    iceberg_conn_id=self._conn_id,
                    verb=verb,
                    partition_keys=self._partition_keys,
                    is_maintenance=verb in CHANGES_NO_ROWS,
                    told=writes_of(self._context).told,
                )
        return result


def _warn_of_other_rows(result: WriteResult, named: str, rows: Any) -> None:
    """Log that rows are not written since those of an earlier try are, if there are more or less of them."""
    count = getattr(rows, "num_rows", None)  # a reader does not know
    if result.outcome is Outcome.FOUND and count is not None and count != result.added_records:
        log.warning(
            "%s: an earlier try of this task has committed write %r (new rows: %s), and now it has %s rows, which are "
            "not written; if they are those of another write, give the writes names; to write them, clear the task",
            *(result.table, named, result.added_records, count),
        )
