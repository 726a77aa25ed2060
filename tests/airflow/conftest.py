"""A lake in a folder, an Airflow connection to it, and DAGs that run in this process."""

import asyncio
import itertools
import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from airflow.models.dagrun import DagRun
from airflow.models.taskinstance import clear_task_instances
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException
from airflow.sdk import DAG
from airflow.sdk.definitions.dag import _run_task
from airflow.utils.session import create_session
from packaging.version import Version

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.catalogs.names import split_levels
from airflow_iceberg.catalogs.sql.catalog import SqlCatalog
from airflow_iceberg.paimon import new_snapshot
from airflow_iceberg.table import Table
from tests.airflow.live import LiveAirflow
from tests.airflow.paimon_lake import CONN_ID as PAIMON_CONN_ID
from tests.airflow.paimon_lake import PaimonLake
from tests.support.airflow_home import register, xcom
from tests.support.airflow_versions import AIRFLOW, as_the_scheduler_has_it

CONN_ID = "iceberg_catalog_default"
DAY = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Lake:
    """A SQL catalog in a folder, and what tests ask of it."""

    folder: Path

    @property
    def connection(self) -> dict[str, Any]:
        return {
            "conn_type": "iceberg_catalog",
            "host": f"sqlite:///{self.folder / 'catalog.db'}",
            "extra": {"type": "sql", "catalog_name": "lake", "warehouse": (self.folder / "warehouse").as_uri()},
        }

    @property
    def catalog(self) -> Any:
        extra = dict(self.connection["extra"])
        return load_catalog(extra.pop("catalog_name"), uri=self.connection["host"], **extra)

    def create(self, name: str = "s.t", schema: Mapping[str, str] | None = None, **options: Any) -> Any:
        catalog = self.catalog
        catalog.create_namespace(split_levels(name)[:-1], if_not_exists=True)
        return Table.create(catalog, name, schema=schema or {"id": "long"}, **options)

    def load(self, name: str = "s.t") -> Any:
        return Table.load(self.catalog, name)

    def ids(self, name: str = "s.t", **scan: Any) -> list[int]:
        return sorted(self.load(name).scan(**scan).to_arrow()["id"].to_pylist())

    def write_file(self, name: str, ids: list[int]) -> Path:
        path = self.folder / "source" / name
        path.parent.mkdir(exist_ok=True)
        pq.write_table(pa.table({"id": pa.array(ids, pa.int64())}), path)
        return path

    def append(self, ids: list[int], name: str = "s.t", **options: Any) -> Any:
        return self.load(name).append(pa.table({"id": pa.array(ids, pa.int64())}), **options)

    def staged(self, name: str = "s.t") -> list[Path]:
        """What jobs left under the table's staging prefix."""
        location = self.load(name).location.removeprefix("file://")
        return [path for path in Path(location).rglob("*") if ".staging" in path.parts and path.is_file()]

    def data_files(self, name: str = "s.t") -> list[Path]:
        return list(Path(self.load(name).location.removeprefix("file://")).rglob("*.parquet"))


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """A catalog behind the connection that operators take by default."""
    made = Lake(tmp_path)
    monkeypatch.setenv(f"AIRFLOW_CONN_{CONN_ID.upper()}", json.dumps(made.connection))
    return made


@pytest.fixture
def paimon_lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PaimonLake:
    """A Paimon warehouse behind the default connection; its table is created by the first commit."""
    made = PaimonLake(tmp_path / "warehouse")
    monkeypatch.setenv(f"AIRFLOW_CONN_{PAIMON_CONN_ID.upper()}", json.dumps(made.connection))
    return made


@contextmanager
def airflow_of(lake: Lake, dags: str, environment: Mapping[str, str]) -> Iterator[LiveAirflow]:
    """Run an Airflow of its own with the DAGs of a folder of this one, and the lake."""
    known = {
        "AIRFLOW_ICEBERG_TEST_LAKE": str(lake.folder),
        f"AIRFLOW_CONN_{CONN_ID.upper()}": json.dumps(lake.connection),
    }
    home = lake.folder.with_name(f"{lake.folder.name}-airflow")
    with LiveAirflow(home, dags=Path(__file__).parent / dags, environment={**known, **environment}) as running:
        yield running


@dataclass(frozen=True)
class Run:
    """A DAG run that ended, and what its tasks raised."""

    dag_run: Any
    failures: list[BaseException]

    @property
    def refusal(self) -> str:
        """What the only try says, which has failed for good."""
        (error,) = self.failures
        assert (self.state, type(error)) == ("failed", AirflowFailException)
        return str(error)

    @property
    def state(self) -> str:
        return str(self.dag_run.state)

    def task(self, task_id: str, map_index: int = -1) -> Any:
        return next(t for t in self.dag_run.get_task_instances() if (t.task_id, t.map_index) == (task_id, map_index))

    def result(self, task_id: str, **which: Any) -> Any:
        return xcom(self.dag_run, task_id, **which)


class Instance:
    """Stands in for a task instance where nothing but XCom is asked of it."""

    map_index = -1

    def __init__(self) -> None:
        self.pushed: dict[str, Any] = {}

    def xcom_push(self, key: str, value: Any) -> None:
        self.pushed[key] = value

    def xcom_pull(self, **_: Any) -> list[Any]:
        return list(self.pushed.values())


_numbers = itertools.count()


@pytest.fixture
def failures() -> list[BaseException]:
    """What the tasks of `new_dag`'s DAGs raised, whether Airflow tries them again or not."""
    return []


@pytest.fixture
def new_dag(failures: list[BaseException]) -> Callable[..., Any]:
    """Makes a DAG of a name that no other test uses, whose retries do not wait."""

    def collect(context: Mapping[str, Any]) -> None:
        failures.append(context["exception"])

    def make(**defaults: Any) -> Any:
        return DAG(
            f"test_{os.getpid()}_{next(_numbers)}",
            schedule=None,
            start_date=DAY,
            default_args={
                "retry_delay": timedelta(0),
                "on_failure_callback": collect,
                "on_retry_callback": collect,
                **defaults,
            },
        )

    return make


@pytest.fixture
def _exceptions_reach_callbacks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow before 3.3 has them in the context of callbacks, but not when `DAG.test` runs the task."""
    if Version("3.3") <= AIRFLOW:
        return
    from airflow.sdk.execution_time import task_runner

    finalize = task_runner.finalize

    def with_exception(ti: Any, state: Any, context: Any, log: Any, error: BaseException | None = None) -> None:
        context.setdefault("exception", error)
        finalize(ti, state, context, log, error)

    monkeypatch.setattr(task_runner, "finalize", with_exception)


@pytest.fixture
def run_dag(airflow_db: Path, failures: list[BaseException], _exceptions_reach_callbacks: None) -> Callable[..., Run]:
    def run(dag: Any, day: datetime | None = DAY, **options: Any) -> Run:
        register(dag)
        before = len(failures)
        return Run(dag.test(logical_date=day, **options), failures[before:])

    return run


@pytest.fixture
def run_task(new_dag: Callable[..., Any], run_dag: Callable[..., Run]) -> Callable[..., Run]:
    """Runs a new DAG of one task, of the operator and the arguments that are given."""

    def run(operator: Callable[..., Any], /, day: datetime | None = DAY, **options: Any) -> Run:
        with new_dag() as dag:
            operator(**options)
        return run_dag(dag, day=day)

    return run


def operators(kind: Callable[..., Any], **defaults: Any) -> Callable[..., Any]:
    """Return what makes operators of a kind, by default for the table `s.t` and with jobs in this process."""
    return lambda **options: kind(**{"table": "s.t", **defaults, **options})


def dying(kind: type[Any], then: Callable[[], Any] = lambda: None) -> type[Any]:
    """Return an operator whose first try fails after it has done its work, and after something else has happened."""

    class Dies(kind):
        def execute(self, context: Any) -> Any:
            result = super().execute(context)
            if context["ti"].try_number == 1:
                then()
                raise AirflowException("after the commit")
            return result

    return Dies


@pytest.fixture
def clear(airflow_db: Path) -> Callable[[Any, Run], Run]:
    """Clears all tasks of a run, as the button does, and runs them again; `dag.test()` would make another run."""

    def rerun(dag: Any, run: Run) -> Run:
        with create_session() as session:
            again = session.get(DagRun, run.dag_run.id)
            again.dag = as_the_scheduler_has_it(dag)
            clear_task_instances(again.get_task_instances(session=session), session)
            again.state = "running"
            session.flush()
            ready, _ = again.update_state(session=session)
            for instance in ready:
                instance.try_number += 1
                instance.state = "scheduled"
        for instance in ready:
            _run_task(ti=instance, task=dag.task_dict[instance.task_id], run_triggerer=True)
        return run

    return rerun


async def _first(trigger: Any) -> Any:
    async for event in trigger.run():
        return event.payload
    raise AssertionError("the trigger ended without an event")


def first_event(trigger: Any, timeout: float | None = None) -> Any:
    return asyncio.run(asyncio.wait_for(_first(trigger), timeout))


def waits(trigger: Any, until: Callable[[], bool]) -> None:
    """Run a trigger that has no event until something has happened."""

    async def watch() -> None:
        event = asyncio.create_task(_first(trigger))
        async with asyncio.timeout(60):
            while not until():
                assert not event.done(), "it fired, or failed"
                await asyncio.sleep(0.01)
        event.cancel()

    asyncio.run(watch())


@pytest.fixture
def event_beside(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Runs a trigger that calls a function, which is held up until the event loop has moved on."""
    began, moved = threading.Event(), threading.Event()

    def run(owner: Any, name: str, trigger: Any) -> Any:
        real = getattr(owner, name)

        def held(*arguments: Any, **options: Any) -> Any:
            began.set()
            assert moved.wait(60), "the event loop stands still"
            return real(*arguments, **options)

        async def watch() -> Any:
            event = asyncio.create_task(_first(trigger))
            while not began.is_set():
                await asyncio.sleep(0.01)
            moved.set()
            return await event

        monkeypatch.setattr(owner, name, held)
        return asyncio.run(watch())

    return run


@pytest.fixture
def before_look(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Callable[[], Any]]:
    """Does something before those who wait look at the table again, however long that takes.

    Give it an action for each look from the second one on: the first is that of the sensor, which defers then, the
    others are those of its poking or its triggerer. It gives a function that returns what the last action returned.
    """

    def start(*actions: Callable[[], Any], skip: int = 1, when: Callable[[], Any] = lambda: True) -> Callable[[], Any]:
        left, done, seen, busy = list(actions), [], itertools.count(), threading.Lock()

        def watched(look: Callable[..., Any]) -> Callable[..., Any]:
            def call(*arguments: Any, **options: Any) -> Any:
                if left and busy.acquire(blocking=False):  # what an action does itself is no look
                    if when() and next(seen) >= skip:
                        done.append(left.pop(0)())
                    busy.release()
                return look(*arguments, **options)

            return call

        monkeypatch.setattr(SqlCatalog, "load", watched(SqlCatalog.load))
        monkeypatch.setattr(new_snapshot, "look", watched(new_snapshot.look))
        return lambda: done[-1]

    return start
