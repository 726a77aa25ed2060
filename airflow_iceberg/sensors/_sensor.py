"""What the sensors share: poking or deferring, the start after which snapshots count, what earlier runs have seen."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.providers.common.compat.sdk import AirflowSensorTimeout, AirflowTaskTimeout, conf
from airflow.sdk import BaseSensorOperator, PokeReturnValue

from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.hooks.arguments import is_nothing, iso_ms, to_ms
from airflow_iceberg.hooks.given import CheckedArguments
from airflow_iceberg.retries import airflow_failures

if TYPE_CHECKING:
    from airflow.sdk import Context
    from airflow.triggers.base import BaseTrigger

LOGICAL_DATE = "logical_date"
LAST_SEEN = "last_seen"


class RemembersSeen:
    """What a run of a task has seen is known to its later runs."""

    # The key of the XCom for later runs: one of its own, so that it is kept when the task's result is not
    # (`do_xcom_push=False`).
    last_seen_key: ClassVar[str]
    branch: Any
    task_id: str

    def _write_seen(self, context: Context, table: str, seen: Mapping[str, Any]) -> None:
        """Store what this run has seen, for later runs of the task."""
        ti = context["ti"]
        place = {"table": table, "branch": self.branch, "map_index": _map_index(ti)}
        ti.xcom_push(key=self.last_seen_key, value={**place, **seen})

    def _read_seen(self, context: Context, table: str, time_key: str) -> dict[str, Any] | None:
        """Return what the latest earlier run of this task has seen, None at the first run.

        XCom is the only store that is kept from run to run on every Airflow 3: the task state store of 3.3 belongs to a
        single run, and the asset state store needs an asset. This run's own entries were cleared when its task started,
        so a cleared task sees the same snapshots again.

        Args:
            table: the table that is checked now; it may be a template, and earlier runs may have checked another one.
            time_key: the entry by which the latest run is found.
        """
        ti = context["ti"]
        # All earlier runs, not the latest: Airflow sorts them by logical date alone, databases differ in where runs
        # without one come, and the latest may have checked another table. Small entries, read once per run.
        seen = ti.xcom_pull(task_ids=[self.task_id], key=self.last_seen_key, include_prior_dates=True)
        place = (table, self.branch, _map_index(ti))
        mine = [one for one in seen or () if one and (one["table"], one["branch"], one["map_index"]) == place]
        return max(mine, key=lambda one: int(one[time_key]), default=None)


class EndsInTime(BaseSensorOperator):
    """A sensor whose `execution_timeout` also ends it while it is deferred.

    Airflow 3 applies this to processes of workers only, and would wait for all of the sensor's `timeout`.
    """

    def time_left(self, context: Context, seconds: float) -> timedelta:
        """Return how long the sensor may be deferred: for a second at least, so that its trigger looks.

        Args:
            seconds: what is left of its own `timeout`.
        """
        left = timedelta(seconds=seconds)
        if self.execution_timeout is not None:
            # Airflow keeps the start over the processes of a deferred try.
            now = datetime.now(UTC)
            started = getattr(context.get("ti"), "start_date", None) or now
            left = min(left, started + self.execution_timeout - now)
        return max(left, timedelta(seconds=1))

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context) -> Any:
        """Go on after the trigger; if the time of the task is up, and not that of the sensor, it may be retried."""
        try:
            return super().resume_execution(next_method, next_kwargs, context)
        except AirflowSensorTimeout as error:
            limit = self.execution_timeout
            if limit is None or limit >= timedelta(seconds=self.timeout):
                raise
            raise AirflowTaskTimeout(f"the sensor has waited longer than its execution_timeout, {limit}") from error


class SnapshotSensor(RemembersSeen, CheckedArguments, EndsInTime):
    """Waits for a snapshot, in a worker or in the triggerer."""

    # Whether the trigger may end before the snapshot is there, so that the sensor has to remember its deadline.
    is_deferred_again: ClassVar[bool] = False
    # A task before that has committed nothing gives no snapshot: then any one counts.
    may_be_nothing = frozenset(("after_snapshot_id",))
    _is_deferring: bool = False
    ui_color = "#dbeeff"

    def __init__(
        self,
        *,
        branch: str = "main",
        after_snapshot_id: str | int | None = None,
        after: str | None = None,
        wait_for_table: bool | str = False,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.branch = branch
        self.after_snapshot_id = after_snapshot_id
        self.after = after
        self.wait_for_table = wait_for_table
        self.deferrable = deferrable

    def execute(self, context: Context) -> Any:
        """Poke until the snapshot is there, or look once and defer."""
        self._is_deferring = defers(self)
        return super().execute(context)

    def poke(self, context: Context) -> PokeReturnValue:
        """Look at the table once, and then defer if the task is to."""
        with airflow_failures():
            found = self._look(context)
        if found is None and self._is_deferring:
            self._defer_until(context, time.time() + self.timeout)
        return PokeReturnValue(is_done=found is not None, xcom_value=found)

    @abstractmethod
    def _look(self, context: Context) -> dict[str, Any] | None:
        """Look at the table once, and return the task's result, None if the wait continues."""

    def _defer_until(self, context: Context, deadline: float) -> None:
        """Defer until the time is up, in seconds since the epoch."""
        timeout = self.time_left(context, deadline - time.time())
        kwargs = {"deadline": deadline} if self.is_deferred_again else None
        self.defer(trigger=self._trigger(), method_name="execute_complete", kwargs=kwargs, timeout=timeout)

    @abstractmethod
    def _trigger(self) -> BaseTrigger:
        """Return the trigger that goes on waiting where the sensor's own look has ended."""

    def _check_one_start(self) -> None:
        """Reject two starts after which snapshots count."""
        if self.after and self.after_snapshot_id is not None:
            raise InvalidInputError(
                f"sensor {self.task_id}: after_snapshot_id and after={self.after!r} are both given, expected one"
            )


def defers(sensor: Any) -> bool:
    """Tell whether a sensor that a worker executes defers after its first look.

    It does so inside of Airflow's loop of looks, where `soft_fail`, `never_fail` and `silent_fail` are. One that should
    have started in the triggerer is here because Airflow could not do that, as it cannot for mapped tasks.
    """
    return bool(sensor.deferrable or sensor.start_from_trigger)


def _map_index(ti: Any) -> int:
    """Return the number of a mapped task, -1 for one that is not mapped."""
    return -1 if ti.map_index is None else int(ti.map_index)


def snapshot_id_of(value: str | int | None) -> int | None:
    """Return the id that a DAG author gave, None for none."""
    try:
        return None if is_nothing(value) or value is None else int(value)
    except ValueError as error:
        raise InvalidInputError(f"after_snapshot_id {value!r} is not the id of a snapshot, expected digits") from error


def after_to_ms(after: str, context: Context) -> int:
    """Return the time that the argument `after` means, in milliseconds since the epoch.

    A run without a logical date has the time after which it could begin instead.
    """
    if after == LOGICAL_DATE:
        return to_ms(context.get("logical_date") or context["dag_run"].run_after)
    return iso_ms("after", after, instead=f"{LAST_SEEN!r}, {LOGICAL_DATE!r}")
