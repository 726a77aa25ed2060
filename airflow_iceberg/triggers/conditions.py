"""The trigger of the sensors that wait for a condition of a table, and the conditions by their names.

`plan.conditions` decides; `waiting` says what a look means. This module imports nothing heavy: the conditions are
imported when they are made.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseTrigger

from airflow_iceberg.errors import IcebergError, InvalidInputError, came, true_or_false
from airflow_iceberg.hooks.arguments import from_json, is_nothing, iso_ms, names, seconds, whole_number
from airflow_iceberg.hooks.given import refuse_nothing
from airflow_iceberg.retries import to_event
from airflow_iceberg.triggers._event import event_of, stored_failures
from airflow_iceberg.triggers._table_poll import poll_of
from airflow_iceberg.triggers.waiting import Found, Waiting

if TYPE_CHECKING:
    from airflow.triggers.base import TriggerEvent

    from airflow_iceberg.plan.conditions.decision import Condition

log = logging.getLogger(__name__)

_TEXTS = frozenset(("branch", "into", "tag"))


_imported: set[str] = set()


async def wait_for(waiting: Waiting, conn_id: str, poll_interval: float) -> Mapping[str, Any]:
    """Wait until the condition is met, and return the result; log what is waited for in the trigger's own log.

    Raises:
        IcebergError: no later look can succeed.
    """
    async with aclosing(poll_of(conn_id, waiting.table).answers(poll_interval, waiting)) as answers:
        async for answer in answers:
            if isinstance(answer, Found):
                return answer.result
            log.log(answer.level, "%s", answer.text)
    raise AssertionError("unreachable: a poll ends with its waiters")


class IcebergConditionTrigger(BaseTrigger):
    """Fires once: when a table meets a condition, or when no look can succeed any more.

    It is also what starts a sensor with `start_from_trigger=True`; then Airflow renders the templates of the arguments.

    Args:
        kind: the condition: snapshot, partition, freshness, row_count, schema_change or branch_published.
        table: the namespace and name of the table, `sales.orders`.
        iceberg_conn_id: the id of the catalog's connection.
        wait_for_table: whether the trigger waits for a table or branch that does not exist, instead of failing.
        poll_interval: seconds between two checks.
        arguments: those of the sensor, under the same names.
    """

    def __init__(
        self,
        *,
        kind: str,
        table: str,
        iceberg_conn_id: str,
        wait_for_table: bool = False,
        poll_interval: float = 60.0,
        **arguments: Any,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.kind = kind
        self.table = table
        self.iceberg_conn_id = iceberg_conn_id
        self.wait_for_table = wait_for_table
        self.poll_interval = poll_interval
        self._names = tuple(arguments)
        own = {"table": table, "iceberg_conn_id": iceberg_conn_id, "wait_for_table": wait_for_table}
        self._given = {**own, **arguments}
        # As attributes: Airflow renders templates of what a sensor has under the same name.
        for name, value in arguments.items():
            setattr(self, name, value)

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of the condition."""
        return {name: getattr(self, name) for name in self._names}

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class and the arguments of an equal trigger; the same for equal triggers."""
        own = ("kind", "table", "iceberg_conn_id", "wait_for_table", "poll_interval")
        return (
            "airflow_iceberg.triggers.conditions.IcebergConditionTrigger",
            {**{name: getattr(self, name) for name in own}, **self.arguments},
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait, and yield one event."""
        event: Mapping[str, Any]
        with stored_failures():
            try:
                event = {"status": "found", "result": await self._wait()}
            except IcebergError as error:
                event = to_event(error)
        yield await event_of(event)

    async def _wait(self) -> Mapping[str, Any]:
        self._check_rendered()
        if self.kind not in _imported:  # the first of its kind is imported, in a thread
            await asyncio.to_thread(make_condition, self.kind, self.arguments)
            _imported.add(self.kind)
        condition = make_condition(self.kind, self.arguments)
        waits = true_or_false("wait_for_table", self.wait_for_table)
        waiting = Waiting(self.table, condition, wait_for_table=waits)
        return await wait_for(waiting, self.iceberg_conn_id, self.poll_interval)

    def _check_rendered(self) -> None:
        given = json.dumps([self.table, self.iceberg_conn_id, self.arguments], default=str)
        if "{{" in given or "{%" in given:
            raise InvalidInputError(
                f"this Airflow did not render the templates of {self.kind} of table {self.table}; a sensor with "
                f"templates needs Airflow 3.3 for start_from_trigger=True, use deferrable=True"
            )
        for name, before in self._given.items():
            if name != "after_snapshot_id":  # as of the sensor
                refuse_nothing(name, before, getattr(self, name))


def make_condition(kind: str, arguments: Mapping[str, Any]) -> Condition:
    """Return the condition that the arguments of a sensor describe, after their templates were rendered.

    Raises:
        InvalidInputError: an argument is not what it should be.
    """
    if kind not in _MAKE:
        raise InvalidInputError(f"unknown condition {kind!r}, expected one of {', '.join(_MAKE)}")
    for name in _TEXTS & arguments.keys():
        given = arguments[name]
        if given is not None and not isinstance(given, str):
            raise InvalidInputError(f"{name} is {came(given)}, expected a name as text")
    return _MAKE[kind](arguments)


def _snapshot(given: Mapping[str, Any]) -> Condition:
    from airflow_iceberg.plan.new_snapshot import SnapshotCondition

    after = given.get("after")
    known = given.get("after_snapshot_id")
    after_id = None if is_nothing(known) else whole_number("after_snapshot_id", known)
    if after == "last_seen" or (after is None and "after_snapshot_id" not in given):
        raise InvalidInputError(
            "start_from_trigger=True cannot read what the last run has seen: give after_snapshot_id, or after with "
            "'logical_date' or a time"
        )
    return SnapshotCondition(
        branch=given["branch"],
        after_snapshot_id=after_id,
        after_ms=None if after is None else iso_ms("after", after, instead="a time"),
        operations=names("operations", given.get("operations")),
        include_maintenance=true_or_false("include_maintenance", given.get("include_maintenance", False)),
    )


def _partition(given: Mapping[str, Any]) -> Condition:
    from airflow_iceberg.plan.conditions.partition import PartitionCondition

    return PartitionCondition(
        branch=given["branch"],
        partition=_mapping("partition", given.get("partition")),
        min_rows=whole_number("min_rows", given.get("min_rows")),
        properties=_mapping("properties", given.get("properties")),
        tag=given.get("tag"),
    )


def _freshness(given: Mapping[str, Any]) -> Condition:
    from airflow_iceberg.plan.conditions.freshness import FreshnessCondition

    after = given.get("after")
    return FreshnessCondition(
        branch=given["branch"],
        max_age_s=seconds("max_age", given.get("max_age")),
        after_ms=None if after is None else iso_ms("after", after, instead="a time"),
        include_maintenance=true_or_false("include_maintenance", given.get("include_maintenance", False)),
    )


def _row_count(given: Mapping[str, Any]) -> Condition:
    from airflow_iceberg.plan.conditions.row_count import RowCountCondition

    limits = {name: whole_number(name, given.get(name)) for name in ("min_rows", "max_rows")}
    return RowCountCondition(branch=given["branch"], **limits)


def _schema_change(given: Mapping[str, Any]) -> Condition:
    from airflow_iceberg.plan.conditions.schema_change import SchemaChangeCondition

    after_id, columns = (
        whole_number("after_schema_id", given.get("after_schema_id")),
        names("columns", given.get("columns")),
    )
    if given.get("after") == "last_seen" and after_id is None and not columns:
        raise InvalidInputError(
            "start_from_trigger=True cannot read what the last run has seen: give after_schema_id or columns"
        )
    uuid = given.get("after_table_uuid")
    return SchemaChangeCondition(after_schema_id=after_id, after_table_uuid=uuid, columns=columns or ())


def _branch_published(given: Mapping[str, Any]) -> Condition:
    from airflow_iceberg.plan.conditions.branch_published import BranchPublishedCondition

    return BranchPublishedCondition(
        branch=given["branch"],
        into=given["into"],
        snapshot_id=whole_number("snapshot_id", given.get("snapshot_id")),
    )


_MAKE: dict[str, Callable[[Mapping[str, Any]], Condition]] = {
    "snapshot": _snapshot,
    "partition": _partition,
    "freshness": _freshness,
    "row_count": _row_count,
    "schema_change": _schema_change,
    "branch_published": _branch_published,
}


def _mapping(name: str, value: Any) -> dict[str, Any]:
    found = from_json(name, "a JSON object of names and values", value)
    if found is None:
        return {}
    if not isinstance(found, Mapping):
        raise InvalidInputError(f"{name} is {came(found)}, expected names and values")
    return dict(found)
