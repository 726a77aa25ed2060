"""What the sensors of Iceberg tables share: looks at the table, what the log says about them, and the triggers.

`triggers.waiting` says what a look means, to these sensors and to their triggers alike.
"""

from __future__ import annotations

import base64
import logging
from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from airflow.providers.common.compat.sdk import AirflowSensorTimeout, AirflowSkipException, AirflowTaskTimeout, conf
from airflow.sdk import BaseSensorOperator, PokeReturnValue
from airflow.triggers.base import StartTriggerArgs

from airflow_iceberg.errors import NotFoundError, true_or_false
from airflow_iceberg.hooks.given import CheckedArguments
from airflow_iceberg.hooks.iceberg import IcebergHook
from airflow_iceberg.links import SnapshotLink, TableLink, pages
from airflow_iceberg.retries import airflow_failures, from_event, tell
from airflow_iceberg.sensors._sensor import EndsInTime, defers
from airflow_iceberg.triggers.conditions import IcebergConditionTrigger, make_condition
from airflow_iceberg.triggers.waiting import Found, Waiting, look_at

if TYPE_CHECKING:
    from airflow.sdk import BaseOperatorLink, Context


class WatchesTable(EndsInTime):
    """Looks at a table, and logs what it waits for and what the table has: at first, every few looks, and at the end.

    The sensor that takes part in this makes its `Waiting` in `_new_waiting`.
    """

    table: str
    iceberg_conn_id: str
    operator_extra_links: Collection[BaseOperatorLink] = (TableLink(), SnapshotLink())
    _hook: IcebergHook | None = None
    _waiting: Waiting | None = None
    _found: Mapping[str, Any] | None = None

    @abstractmethod
    def _new_waiting(self, context: Context) -> Waiting:
        """Return the wait as the arguments describe it."""

    def pages(self, ti_key: Any) -> dict[str, str]:
        """Return the addresses of the pages of the table and of the snapshot that was found."""
        if self._hook is None and self._found is None:
            return {}  # the task has not come to its connection
        hook = self._hook or IcebergHook(self.iceberg_conn_id)
        found = (self._found or {}).get("snapshot_id")
        return pages(self, hook.config, () if found is None else (int(found),), ti_key)

    def execute(self, context: Context) -> Any:
        """Wait, and log what the table had if the time was up."""
        try:
            return super().execute(context)
        except (AirflowSensorTimeout, AirflowSkipException) as error:
            if _is_timeout(error) and self._waiting is not None:
                _tell_timeout(self._waiting.text)
            raise

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context) -> Any:
        """Go on after the trigger; if the time is up, look once more, for the log."""
        try:
            return super().resume_execution(next_method, next_kwargs, context)
        except (AirflowSensorTimeout, AirflowSkipException, AirflowTaskTimeout) as error:
            if _is_timeout(error):
                # Only for the log: whatever goes wrong here, the task has timed out.
                with suppress(Exception):
                    self._look_once(context)
                if self._waiting is not None:
                    _tell_timeout(self._waiting.text, is_of_task=isinstance(error, AirflowTaskTimeout))
            raise

    def _look_once(self, context: Context) -> Mapping[str, Any] | None:
        """Look at the table, and return the result, None if the wait continues."""
        # Once per process: what was seen last is read from Airflow's database, not at every poke.
        self._waiting = self._waiting or self._new_waiting(context)
        self._hook = self._hook or IcebergHook(self.iceberg_conn_id)
        try:
            answer = self._waiting(look_at(self._hook.catalog, self.table))
        except NotFoundError as error:
            if error.is_unknown_name:
                self._hook.load_table(self.table)  # its error says where it was looked for, and which names are near
            raise
        if isinstance(answer, Found):
            return answer.result
        if answer is not None:
            self.log.log(answer.level, "%s", answer.text)
        return None


def _tell_timeout(waiting: str, *, is_of_task: bool = False) -> None:
    longer = "task a longer execution_timeout" if is_of_task else "sensor a longer timeout"
    to_do = f"look why the table has not got it yet, or give the {longer}, then clear the task"
    # A sensor that skips itself then has not failed.
    tell(f"timed out while {waiting}", to_do, level=logging.WARNING)


def _is_timeout(error: BaseException) -> bool:
    """Whether the time was up: a sensor that skips itself then has no other cause."""
    if isinstance(error, AirflowSkipException):
        return error.__cause__ is None or isinstance(error.__cause__, AirflowSensorTimeout)
    return True


def start_in_trigger(sensor: BaseSensorOperator, kind: str, arguments: Mapping[str, Any]) -> None:
    """Let Airflow start a sensor in the triggerer, without a worker before that."""
    own = {name: getattr(sensor, name) for name in ("table", "iceberg_conn_id", "wait_for_table")}
    sensor.start_from_trigger = True
    sensor.start_trigger_args = StartTriggerArgs(
        trigger_cls="airflow_iceberg.triggers.conditions.IcebergConditionTrigger",
        # The text of another task's value is a template for it.
        trigger_kwargs={"kind": kind, "poll_interval": sensor.poke_interval, **_plain({**own, **arguments})},
        next_method="execute_complete",
        timeout=timedelta(seconds=sensor.timeout),
    )


class TableSensor(CheckedArguments, WatchesTable):
    """Waits for a table to meet a condition, in a worker or in the triggerer.

    Attributes:
        kind: the name of the condition; see `triggers.conditions`.
        arguments: the names of its arguments, which are attributes of the sensor.
    """

    kind: ClassVar[str]
    arguments: ClassVar[tuple[str, ...]]
    template_fields: Sequence[str] = ("table", "iceberg_conn_id", "wait_for_table")
    ui_color = "#dbeeff"
    _is_deferring: bool = False

    def __init__(
        self,
        *,
        table: str,
        iceberg_conn_id: str = IcebergHook.default_conn_name,
        wait_for_table: bool | str = False,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        start_from_trigger: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.table = table
        self.iceberg_conn_id = iceberg_conn_id
        self.wait_for_table = wait_for_table
        self.deferrable = deferrable
        self.start_from_trigger = start_from_trigger

    def _start_in_trigger(self) -> None:
        """Called at the end of a constructor, when all arguments are there."""
        if self.start_from_trigger is True:
            start_in_trigger(self, self.kind, self._for_trigger())

    def execute(self, context: Context) -> Any:
        """Poke until the condition is met, or look once and defer."""
        self._is_deferring = defers(self)
        return super().execute(context)

    def poke(self, context: Context) -> PokeReturnValue:
        """Look at the table once, and then defer if the task is to."""
        with airflow_failures():
            result = self._look_once(context)
        if result is not None:
            return PokeReturnValue(is_done=True, xcom_value=self._done(context, dict(result)))
        if self._is_deferring:
            self._defer(context)
        return PokeReturnValue(is_done=False)

    def _defer(self, context: Context) -> NoReturn:
        trigger = IcebergConditionTrigger(
            kind=self.kind,
            table=self.table,
            iceberg_conn_id=self.iceberg_conn_id,
            wait_for_table=true_or_false("wait_for_table", self.wait_for_table),
            poll_interval=self.poke_interval,
            **self._resolved(context),
        )
        timeout = self.time_left(context, self.timeout)
        self.defer(trigger=trigger, method_name="execute_complete", timeout=timeout)

    def execute_complete(self, context: Context, event: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return what the trigger has found, or raise its error."""
        event = dict(event or {})
        with airflow_failures():
            if event.get("status") != "found":
                raise from_event(event)
        return self._done(context, dict(event["result"]))

    def _done(self, context: Context, result: dict[str, Any]) -> dict[str, Any]:
        """Report the result; overridden by sensors that remember it."""
        self._found = result
        self.log.info("table %s has what was waited for: %s", result["table"], result)
        return result

    def _given(self) -> dict[str, Any]:
        """Return the arguments of the condition, for a trigger, in JSON types."""
        return {name: _plain(getattr(self, name)) for name in self.arguments}

    def _for_trigger(self) -> dict[str, Any]:
        """Return the arguments for a start in the triggerer; overridden by sensors that remember."""
        return self._given()

    def _resolved(self, context: Context) -> dict[str, Any]:
        """Return the arguments with what only this run knows; overridden by sensors that remember."""
        return self._given()

    def _new_waiting(self, context: Context) -> Waiting:
        condition = make_condition(self.kind, self._resolved(context))
        return Waiting(self.table, condition, wait_for_table=true_or_false("wait_for_table", self.wait_for_table))


def _plain(value: Any) -> Any:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")  # as in a partition's path
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)
