"""IcebergSnapshotTrigger by itself; in a real triggerer it is part of `test_killed_tasks`."""

from collections.abc import Callable
from typing import Any

from airflow_iceberg.errors import FormatError, InvalidInputError, NotFoundError
from airflow_iceberg.retries import from_event, to_event
from airflow_iceberg.triggers.iceberg import IcebergSnapshotTrigger
from tests.airflow.conftest import CONN_ID, Lake


def trigger(**options: Any) -> IcebergSnapshotTrigger:
    return IcebergSnapshotTrigger(**{"table": "s.t", "iceberg_conn_id": CONN_ID, "poll_interval": 0.1, **options})


async def first(made: IcebergSnapshotTrigger) -> Any:
    async for event in made.run():
        return event.payload
    raise AssertionError("the trigger ended without an event")


class TestItsSerializedForm:
    """Airflow keeps it in its database and makes the trigger again from it, perhaps elsewhere."""

    def test_makes_an_equal_trigger(self) -> None:
        made = trigger(
            after_snapshot_id=2**62 + 1,
            after_snapshot_ms=4,
            operations=("append",),
            branch="b",
            after_ms=5,
            wait_for_table=True,
        )
        path, kwargs = made.serialize()
        assert path == f"{IcebergSnapshotTrigger.__module__}.IcebergSnapshotTrigger"
        again = IcebergSnapshotTrigger(**kwargs)
        assert again.serialize() == (path, kwargs)
        assert again.condition == made.condition

    def test_is_made_of_values_that_survive_json_and_javascript(self) -> None:
        import json

        _, kwargs = trigger(after_snapshot_id=2**62 + 1, operations=("append",)).serialize()
        assert json.loads(json.dumps(kwargs)) == kwargs
        assert kwargs["after_snapshot_id"] == str(2**62 + 1)

    def test_is_the_same_for_the_same_arguments(self) -> None:
        assert trigger().serialize() == trigger().serialize()


class TestItsEvent:
    """One event: the snapshot, or the error that made waiting pointless."""

    def test_is_the_snapshot(self, lake: Lake, run_async: Callable) -> None:
        lake.create()
        result = lake.append([1])
        event = run_async(first(trigger()))
        assert (event["status"], event["snapshot"]["snapshot_id"]) == ("found", str(result.snapshot_id))

    def test_or_the_error(self, lake: Lake, run_async: Callable) -> None:
        lake.create()
        event = run_async(first(trigger(branch="nothing")))
        assert isinstance(from_event(event), NotFoundError)
        assert "nothing" in str(from_event(event))

    def test_an_error_comes_out_as_the_class_that_it_went_in(self) -> None:
        for error in (InvalidInputError("bad"), NotFoundError("gone"), FormatError("broken", path="/x")):
            again = from_event(to_event(error))
            assert (type(again), str(again)) == (type(error), str(error))


class TestTheEventLoop:
    """Many triggers share it: nothing that reads may run on it."""

    def test_is_free_while_the_catalog_is_slow(self, lake: Lake, run_beside: Callable) -> None:
        from airflow_iceberg.catalogs.sql.catalog import SqlCatalog

        lake.create()
        lake.append([1])
        assert run_beside(SqlCatalog, "load", first(trigger()))["status"] == "found"
