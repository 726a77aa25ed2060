"""Where a sensor starts to look: a run's logical date, the snapshot of an earlier run, or a time."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow_iceberg.errors import InvalidInputError

if TYPE_CHECKING:
    from airflow.sdk import Context


LOGICAL_DATE = "logical_date"


LAST_SEEN = "last_seen"


# What an empty XCom of an upstream task is rendered to.
_NOTHING = frozenset({"", "None", "none", "null"})


def map_index_of(ti: Any) -> int:
    """Return the number of a mapped task, -1 for one that is not mapped."""
    return -1 if ti.map_index is None else int(ti.map_index)


def snapshot_id_of(value: str | int | None) -> int | None:
    """Return an id that a DAG author gave, None for what an empty XCom is rendered to."""
    if value is None or str(value).strip() in _NOTHING:
        return None
    try:
        return int(value)
    except ValueError as error:
        raise InvalidInputError(f"after_snapshot_id {value!r} is not the id of a snapshot, expected digits") from error


def run_date_ms(context: Context) -> int:
    """Return the run's logical date, or for a run without one the time after which it could begin."""
    date = context.get("logical_date") or context["dag_run"].run_after
    return _ms(date)


def after_to_ms(after: str, context: Context) -> int:
    """Return what `after` says, the time of the run or another one, in milliseconds since the epoch."""
    if after == LOGICAL_DATE:
        return run_date_ms(context)
    return iso_ms(after, name="after", instead=f"{LAST_SEEN!r}, {LOGICAL_DATE!r}")


def check_one_start(task_id: str, after: str | None, after_snapshot_id: str | int | None) -> None:
    """Refuse two answers to the question after what a snapshot is new."""
    if after and after_snapshot_id is not None:
        raise InvalidInputError(f"sensor {task_id}: after_snapshot_id and after={after!r} are both given, expected one")


def iso_ms(text: str, *, name: str, instead: str) -> int:
    """Return a time that a DAG author gave as ISO 8601, in milliseconds since the epoch; UTC without a zone.

    Args:
        name: of the argument, for the error.
        instead: what else the argument takes, for the error.
    """
    try:
        moment = datetime.fromisoformat(str(text).strip())
    except ValueError as error:
        raise InvalidInputError(
            f"{name}={text!r}: expected {instead} or a time such as '2026-01-31T00:00:00+00:00'"
        ) from error
    return _ms(moment if moment.tzinfo else moment.replace(tzinfo=UTC))


def _ms(moment: datetime) -> int:
    # By way of microseconds, which a float holds exactly; logical dates are pendulum's, whose differences are not ours.
    return round(moment.timestamp() * 1_000_000) // 1000
