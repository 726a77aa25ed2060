"""The operation key of a task, from what Airflow tells a worker about it.

A worker sees no database. Airflow gives it the task instance (`max_tries`, `try_number`) and the run (`start_date`,
`clear_number`). The task's `retries` are those of the DAG file as it is now, so they are not asked.
"""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from airflow_iceberg.errors import InvalidInputError, came
from airflow_iceberg.hooks.arguments import is_nothing
from airflow_iceberg.hooks.run_tasks import TasksOfRun, item_of

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_iceberg.commit.operation_key import OperationKey

SECTION, INSTALLATION_ID = "airflow_iceberg", "installation_id"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LOCAL = ("", "localhost", "127.0.0.1", "::1", "0.0.0.0")
# Runs whose id Airflow makes, of the time that the timetable or the event gives: nobody can choose it.
_BY_AIRFLOW = ("scheduled", "backfill", "asset_triggered")
_TIME_IN_ID = re.compile(r"[a-z_]+__(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d))(?:_.*)?", re.DOTALL)


def operation_key_of(context: Context) -> OperationKey:
    """Return the operation key of a task: the same at every automatic retry, another one after a person cleared it.

    What a clear changes: the run's `clear_number`, also if another task is cleared; `max_tries` of the task, which
    becomes the tries so far plus the retries that the task then had; and the run's start if it had ended. A run that is
    deleted and created again has another start.
    """
    from airflow_iceberg.commit.operation_key import OperationKey, epoch_of

    ti, run = context["ti"], context.get("dag_run")
    started, run_after = getattr(run, "start_date", None), getattr(run, "run_after", None)
    # `dag.test()` deletes its run and creates it again, with the logical date for a start; it has no clears.
    is_test = started is not None and started == getattr(run, "logical_date", None)
    clears = getattr(run, "clear_number", None) or 0
    moments = [moment for moment in (run_after, started) if moment and not is_test]
    begun = [_since_epoch(moment) // timedelta(milliseconds=1) for moment in moments]
    return OperationKey(
        dag_id=ti.dag_id,
        run_id=ti.run_id,
        task_id=ti.task_id,
        map_index=-1 if ti.map_index is None else int(ti.map_index),
        installation=installation_id(),
        epoch=epoch_of(
            started_us=0 if is_test or not started else _since_epoch(started) // timedelta(microseconds=1),
            clear_number=clears,
            max_tries=0 if is_test else int(ti.max_tries),
        ),
        is_cleared=clears > 0,
        try_number=int(ti.try_number),
        older_epoch=_older_epoch(context),
        # A run that was never cleared has had only one start.
        run_after_ms=(min(begun) if clears else begun[-1]) if begun else None,
        started_ms=begun[-1] if begun else None,
        earliest_ms=_earliest_ms(ti.run_id, run) if begun and run_after else None,
        item=item_of(context),
        run_tasks=TasksOfRun.of(context),
    )


def _earliest_ms(run_id: str, run: Any) -> int:
    """Return a time before which no run of this id can have begun, also one that was deleted; 0 if the id tells none.

    A run that is deleted and created again has only its id in common with the one before. Airflow puts `run_after` into
    the ids that it makes, and starts no run before. A person may give any id: one of an earlier run, with the time of
    that one, or a name.
    """
    run_after = _since_epoch(run.run_after)
    kind = getattr(run, "run_type", None) or run_id.partition("__")[0]
    in_id = _time_in(run_id)
    if str(getattr(kind, "value", kind)) in _BY_AIRFLOW:
        earliest = run_after
    elif in_id is None or in_id > run_after:
        return 0
    else:
        earliest = in_id
    return max(earliest // timedelta(milliseconds=1), 0)


def _time_in(run_id: str) -> timedelta | None:
    found = _TIME_IN_ID.fullmatch(run_id)
    try:
        return None if found is None else _since_epoch(datetime.fromisoformat(found[1]))
    except ValueError:
        return None


def as_said(key: OperationKey, write_key: Any, on_removed: Any) -> OperationKey:
    """Return a key with what its author says of the task's work.

    Raises:
        InvalidInputError: a `write_key` that is no text or number, or empty; an unknown word.
    """
    if write_key is None:
        return replace(key, on_removed=on_removed)
    if isinstance(write_key, bool) or not isinstance(write_key, str | int) or is_nothing(write_key):
        raise InvalidInputError(
            f"write_key is {came(write_key)}, expected a text that tells this part of the task's work from the others, "
            f"as the name of its file or region; leave it out if the task has no parts"
        )
    return replace(key, write_key=str(write_key), on_removed=cast("Any", on_removed))


def _older_epoch(context: Context) -> int:
    """Return the epoch that keys had before they named the installation: it depends on today's `retries`."""
    ti = context["ti"]
    epoch = int(ti.max_tries) - int(context["task"].retries or 0)
    return min(max(epoch, 0), max(int(ti.try_number) - 1, 0))


def _since_epoch(moment: datetime) -> timedelta:
    """Return the time since 1970 without rounding, as `timestamp()` would."""
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH


def installation_id() -> str:
    """Return what tells this Airflow from others whose DAGs and runs may have the same names.

    The option `[airflow_iceberg] installation_id`, or a digest of the addresses of the API server, which all workers
    know. An Airflow on one machine with the default address is told by its AIRFLOW_HOME.

    Raises:
        InvalidInputError: the option is no usable name.
    """
    from airflow.providers.common.compat.sdk import conf

    given = str(conf.get(SECTION, INSTALLATION_ID, fallback="") or "").strip()
    if given:
        if len(given) > 100 or not given.isprintable():
            raise InvalidInputError(
                f"option [{SECTION}] {INSTALLATION_ID} is {given!r}: expected a name of at most 100 characters"
            )
        return given
    names = (("api", "base_url"), ("core", "execution_api_server_url"))
    addresses = [str(conf.get(section, name, fallback="") or "").strip().rstrip("/").lower() for section, name in names]
    if all(_host(address) in _LOCAL for address in addresses):
        addresses.append(os.environ.get("AIRFLOW_HOME") or os.path.expanduser("~/airflow"))
    return hashlib.sha256("\n".join(addresses).encode()).hexdigest()[:12]


def _host(address: str) -> str:
    try:
        return urlsplit(address).hostname or ""
    except ValueError:
        return address
