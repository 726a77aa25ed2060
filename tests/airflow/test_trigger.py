"""IcebergSnapshotTrigger by itself; in a real triggerer it is part of `test_system`."""

import json
from typing import Any

import pytest

from airflow_iceberg.catalogs.sql.catalog import SqlCatalog
from airflow_iceberg.errors import FormatError, InvalidInputError, NotFoundError, StorageError
from airflow_iceberg.retries import from_event, is_final, to_event
from airflow_iceberg.triggers import IcebergSnapshotTrigger
from tests.airflow.conftest import CONN_ID, first_event


def trigger(**options: Any) -> IcebergSnapshotTrigger:
    return IcebergSnapshotTrigger(**{"table": "s.t", "iceberg_conn_id": CONN_ID, "poll_interval": 0.1, **options})


class TestItsSerializedForm:
    """Airflow keeps it in its database and makes the trigger again from it, perhaps elsewhere."""

    def test_makes_an_equal_trigger_of_values_that_survive_json_and_javascript(self):
        everything = {"after_snapshot_ms": 4, "operations": ("append",), "branch": "b", "after_ms": 5}
        made = trigger(after_snapshot_id=2**62 + 1, wait_for_table=True, include_maintenance=True, **everything)
        path, kwargs = made.serialize()
        assert path == f"{IcebergSnapshotTrigger.__module__}.IcebergSnapshotTrigger"
        assert json.loads(json.dumps(kwargs)) == kwargs
        assert kwargs["after_snapshot_id"] == str(2**62 + 1)
        again = IcebergSnapshotTrigger(**kwargs)
        assert again.serialize() == (path, kwargs)
        assert again.condition == made.condition


class TestItsEvent:
    """One event: the snapshot, or the error that made waiting pointless."""

    def test_is_the_snapshot_or_the_error(self, lake):
        lake.create()
        result = lake.append([1])
        event = first_event(trigger())
        assert (event["status"], event["snapshot"]["snapshot_id"]) == ("found", str(result.snapshot_id))
        event = first_event(trigger(branch="nothing"))
        assert isinstance(from_event(event), NotFoundError)
        assert "nothing" in str(from_event(event))

    def test_an_error_comes_out_as_the_class_that_it_went_in(self):
        for error in (InvalidInputError("bad"), NotFoundError("gone"), FormatError("broken", path="/x")):
            again = from_event(to_event(error))
            assert (type(again), str(again)) == (type(error), str(error))

    @pytest.mark.parametrize("cause", [None, PermissionError("denied")])
    def test_a_request_that_was_denied_is_as_final_in_the_task(self, cause):
        error = StorageError("the store refuses the request")
        error.__cause__, error.is_denied = cause, cause is None
        assert is_final(from_event(to_event(error)))
        assert not is_final(from_event(to_event(StorageError("the store is away"))))


class TestTheEventLoop:
    """Many triggers share it: nothing that reads may run on it."""

    def test_is_free_while_the_catalog_is_slow(self, lake, event_beside):
        lake.create()
        lake.append([1])
        assert event_beside(SqlCatalog, "load", trigger())["status"] == "found"
