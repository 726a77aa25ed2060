"""Deferred tasks on a real YARN: a process that submits, the trigger, and another process that commits."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_iceberg.triggers import IcebergJobTrigger
from tests.airflow.conftest import Lake, first_event
from tests.services.yarn import RUNNING, Yarn

pytestmark = [pytest.mark.services, pytest.mark.spark, pytest.mark.slow]
DEFERRED = {"table": "s.t", "deferrable": True, "poll_interval": 0.5}


@pytest.fixture(scope="module")
def started() -> Iterator[Yarn]:
    yarn = Yarn()
    yield yarn
    yarn.remove()


@pytest.fixture
def yarn(started: Yarn, monkeypatch: pytest.MonkeyPatch) -> Iterator[Yarn]:
    for name, value in started.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:/usr/bin:/bin")
    connection = {"conn_type": "spark", "host": "yarn", "extra": {"deploy-mode": "cluster"}}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(connection))
    yield started
    for application in started.applications(*RUNNING):
        started.kill(application["id"])


@pytest.fixture
def process(yarn: Yarn, airflow_db: Path) -> Callable[..., dict[str, Any]]:
    """Runs one process of a task to its end, and returns what Airflow would store."""

    def run(kind: str, options: dict[str, Any], event: Any = None) -> dict[str, Any]:
        environment = {**os.environ, "DEFERRED_TASK": json.dumps([kind, {**DEFERRED, **options}])}
        done = subprocess.run(
            [sys.executable, "-m", "tests.airflow.deferred_process"],
            input=json.dumps(event),
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{done.stdout[-3000:]}{done.stderr[-3000:]}{yarn.logs()[-3000:]}"
        return json.loads(done.stdout.splitlines()[-1])

    return run


def trigger_of(answer: dict[str, Any]) -> IcebergJobTrigger:
    path, kwargs = answer["trigger"]
    assert path.endswith(".IcebergJobTrigger")
    return IcebergJobTrigger(**json.loads(json.dumps(kwargs)))


@pytest.fixture
def table(lake: Lake) -> Any:
    made = lake.create()
    lake.append([1, 2])
    lake.append([3, 4])
    return made


class TestADeferredTask:
    """It frees its slot, and another process commits once, beside other writers."""

    @pytest.mark.parametrize(
        ("kind", "options", "expected"),
        [
            ("IcebergAppendOperator", {"files": "FILES"}, [0, 1, 2, 3, 4, 4, 5]),
            pytest.param(
                "IcebergMergeOperator",
                {"sql": "select * from range(4, 6)", "on": ["id"], "upsert": True},
                range(6),
                marks=pytest.mark.long,
            ),
            pytest.param(
                "IcebergCompactOperator", {"options": {"rewrite-all": True}}, range(5), marks=pytest.mark.long
            ),
        ],
        ids=["append", "merge", "compact"],
    )
    def test_is_committed_by_another_process(self, kind, options, expected, lake, table, yarn, process):
        source = str(lake.write_file("a.parquet", [4, 5]))
        options = {name: source if value == "FILES" else value for name, value in options.items()}
        before = len(yarn.applications())
        answer = process(kind, options)
        lake.append([0])  # while the job runs
        snapshots = len(lake.load().snapshots())
        event = first_event(trigger_of(answer), timeout=300)
        assert event["status"] == "ended"
        result = process(kind, options, json.loads(json.dumps(event)))["result"]
        assert result["outcome"] == "committed", yarn.logs()[-3000:]
        assert lake.ids() == list(expected)
        assert len(lake.load().snapshots()) == snapshots + 1
        assert len(yarn.applications()) == before + 1
        assert lake.staged() == []

    def test_is_ended_with_its_application_by_a_user(self, lake, table, yarn, process):
        answer = process("IcebergAppendOperator", {"files": str(lake.write_file("a.parquet", [5]))})
        made = trigger_of(answer)
        asyncio.run(made.on_kill())
        application = next(one for one in yarn.applications() if one["id"] == made.reference["application_id"])
        assert application["state"] == "KILLED"
        assert lake.ids() == [1, 2, 3, 4]

    @pytest.mark.long
    def test_the_next_try_ends_what_nobody_has_ended(self, lake, table, yarn, process):
        options = {"sql": "select id from range(5, 6)"}
        first = trigger_of(process("IcebergAppendOperator", options)).reference["application_id"]
        answer = process("IcebergAppendOperator", options)
        states = {one["id"]: one["state"] for one in yarn.applications()}
        assert states[first] not in RUNNING
        event = first_event(trigger_of(answer), timeout=300)
        assert process("IcebergAppendOperator", options, event)["result"]["outcome"] == "committed"
        assert lake.ids() == [1, 2, 3, 4, 5]
