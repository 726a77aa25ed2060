"""IcebergTableSnapshotTrigger by itself, and in Airflow's own shared streams; in a real triggerer it is elsewhere."""

import asyncio
import dataclasses
import json
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest
import structlog
from airflow.triggers.base import BaseEventTrigger

from airflow_iceberg.catalogs.sql.catalog import SqlCatalog
from airflow_iceberg.errors import InvalidInputError, NotFoundError, StorageError
from airflow_iceberg.format.metadata.updates import AddSnapshot, Change, SetSnapshotRef
from airflow_iceberg.format.snapshots import SnapshotRef
from airflow_iceberg.triggers import IcebergTableSnapshotTrigger
from airflow_iceberg.triggers._table_poll import poll_of
from tests.airflow.conftest import CONN_ID, Lake


class Store:
    """What Airflow gives a trigger to remember things by: those of an asset, in JSON."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.is_away = False

    def get(self, key: str, default: Any = None) -> Any:
        return json.loads(self.values[key]) if key in self.values else default

    def set(self, key: str, value: Any) -> None:
        if self.is_away:
            raise ConnectionError("the API server is away")
        self.values[key] = json.dumps(value)


def watcher(store: Any = None, **options: Any) -> IcebergTableSnapshotTrigger:
    made = IcebergTableSnapshotTrigger(**{"table": "s.t", "iceberg_conn_id": CONN_ID, "poll_interval": 0.05, **options})
    # As a triggerer does: from the serialized form.
    _, kwargs = made.serialize()
    again = IcebergTableSnapshotTrigger(**json.loads(json.dumps(kwargs)))
    again.asset_state_store = store
    return again


@dataclasses.dataclass
class Fired:
    """What a running watcher has fired."""

    events: list[dict[str, Any]] = dataclasses.field(default_factory=list)

    @property
    def ids(self) -> list[int]:
        return [int(event["snapshot_id"]) for event in self.events]

    async def wait(self, number: int) -> None:
        async with asyncio.timeout(60):
            while len(self.events) < number:
                await asyncio.sleep(0.01)


async def looked(trigger: IcebergTableSnapshotTrigger, times: int = 2) -> None:
    """Wait until the table was looked at again, and what was seen was handled."""
    numbers = count()
    poll = poll_of(trigger.iceberg_conn_id, trigger.table)
    async with asyncio.timeout(60):
        async for _ in poll.answers(60, lambda look: next(numbers)):
            if next(numbers) > 2 * times:
                return


@asynccontextmanager
async def running(trigger: IcebergTableSnapshotTrigger) -> AsyncIterator[Fired]:
    """Run a watcher without shared streams, as Airflow did before 3.3."""
    fired = Fired()

    async def run() -> None:
        async for event in trigger.run():
            fired.events.append(event.payload)

    task = asyncio.create_task(run())
    await looked(trigger)
    yield fired
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


class Triggerer:
    """Airflow's own shared streams, and a database that stores events when it is told to."""

    def __init__(self) -> None:
        from airflow.triggers.shared_stream import SharedStreamManager

        self.streams = SharedStreamManager(log=structlog.get_logger(), ack_timeout=60)
        self.seqs: list[int] = []
        self.tasks: dict[asyncio.Task[None], tuple[int, Any]] = {}

    async def start(self, *triggers: IcebergTableSnapshotTrigger) -> list[Fired]:
        fired = self.begin(*triggers)
        await looked(triggers[0])
        return fired

    def begin(self, *triggers: IcebergTableSnapshotTrigger) -> list[Fired]:
        all_fired = []
        for number, trigger in enumerate(triggers):
            key = trigger.shared_stream_key()
            stream = self.streams.subscribe(trigger_id=number, trigger=trigger, key=key)
            all_fired.append(fired := Fired())
            self.tasks[asyncio.create_task(self._run(number, trigger, key, stream, fired))] = (number, key)
        return all_fired

    async def _run(self, number: int, trigger: Any, key: Any, stream: Any, fired: Fired) -> None:
        async for event in trigger.filter_shared_stream(stream):
            fired.events.append(event.payload)
            seq = self.streams.bind_pending_event(trigger_id=number, key=key)
            if seq is not None:
                self.seqs.append(seq)

    def store_events(self) -> None:
        self.streams.confirm_persisted(self.seqs)
        self.seqs = []

    async def stop(self) -> None:
        for task, (number, key) in self.tasks.items():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await self.streams.unsubscribe(number, key)
        await self.streams.stop_all()


confirming = pytest.mark.skipif(
    not hasattr(BaseEventTrigger, "create_shared_stream_producer"), reason="this Airflow does not confirm events"
)


@pytest.fixture
def table(lake: Lake) -> Lake:
    lake.create()
    lake.append([0])
    return lake


def appended(table: Lake, number: int, **options: Any) -> list[int]:
    return [table.append([each], **options).snapshot_id for each in range(number)]


def replaced(table: Lake, name: str = "s.t") -> int:
    """Commit what a compaction would."""
    made = table.load(name).current_snapshot()
    number = made.snapshot_id - 1
    snapshot = dataclasses.replace(
        made,
        snapshot_id=number,
        parent_snapshot_id=made.snapshot_id,
        sequence_number=made.sequence_number + 1,
        summary={"operation": "replace"},
    )
    head = SetSnapshotRef(ref_name="main", ref=SnapshotRef(snapshot_id=number, type="branch"))
    catalog = table.catalog
    catalog.commit(catalog.load(name), Change(updates=(AddSnapshot(snapshot=snapshot), head), requirements=()))
    return number


def test_a_name_is_a_list_of_one():
    chosen = watcher(operations="append", dag_ids="a, b", exclude_dag_ids="mine").filter
    assert (chosen.operations, chosen.dag_ids, chosen.exclude_dag_ids) == (("append",), ("a", "b"), ("mine",))


class TestOneEventASnapshot:
    """Twenty commits between two looks are twenty events, and a compaction is none."""

    @pytest.mark.costly
    def test_twenty_commits_and_a_compaction(self, table):
        async def watch() -> None:
            async with running(watcher()) as fired:
                ids = await asyncio.to_thread(appended, table, 20)
                await asyncio.to_thread(replaced, table)
                ids += await asyncio.to_thread(appended, table, 1)
                await fired.wait(21)
                assert fired.ids == ids
                assert len({event["event_id"] for event in fired.events}) == 21
                assert {(e["operation"], e["table"], e["branch"]) for e in fired.events} == {("append", "s.t", "main")}
                assert {event["added_records"] for event in fired.events} == {1}

        asyncio.run(watch())

    @pytest.mark.costly
    def test_one_event_of_all_new_ones_and_maintenance_on_request(self, table):
        async def watch() -> None:
            at = str(table.load().current_snapshot().snapshot_id)
            ids = appended(table, 3)
            maintained = replaced(table)
            async with (
                running(watcher(since=at, coalesce=True)) as one,
                running(watcher(since=at, include_maintenance=True)) as every,
            ):
                await every.wait(4)
                assert (one.ids, one.events[0]["snapshot_count"], one.events[0]["added_records"]) == ([ids[-1]], 3, 3)
                assert every.ids == [*ids, maintained]

        asyncio.run(watch())

    @pytest.mark.costly
    def test_filters_by_rows_dag_and_partition(self, lake):
        lake.create("s.p", schema={"id": "long"}, partition_by=["id"])

        async def watch() -> None:
            chosen: dict[str, dict[str, Any]] = {
                "many": {"min_records": 3},
                "five": {"partition": {"id": 5}},
                "mine": {"dag_ids": ["mine"]},
                "none": {"partition": {"nothing": 5}},
            }
            triggers = {name: watcher(table="s.p", since="beginning", **each) for name, each in chosen.items()}
            few = lake.append([4, 5], "s.p").snapshot_id
            many = lake.append([1, 2, 3], "s.p").snapshot_id
            async with running(triggers["many"]) as a, running(triggers["five"]) as b, running(triggers["mine"]) as c:
                await a.wait(1)
                await b.wait(1)
                assert (a.ids, b.ids, c.ids) == ([many], [few], [])
                assert b.events[0]["partitions"] == ["id=4", "id=5"]
            async with running(triggers["none"]) as d:
                assert d.ids == []

        asyncio.run(watch())


class TestARestart:
    """What was stored goes on where it was: no event is lost, and none is doubled."""

    @pytest.mark.costly
    def test_without_shared_streams(self, table):
        async def watch() -> list[list[int]]:
            store, seen = Store(), []
            async with running(watcher(store)) as fired:
                first = await asyncio.to_thread(appended, table, 2)
                await fired.wait(2)
                await looked(watcher())
                seen.append(fired.ids)
            second = appended(table, 3)  # while it is down
            async with running(watcher(store)) as fired:
                await fired.wait(3)
                seen.append(fired.ids)
            async with running(watcher(store)) as fired:
                seen.append(fired.ids)
            assert seen == [first, second, []]
            return seen

        asyncio.run(watch())

    def test_commits_before_the_first_event_are_not_lost(self, table):
        async def watch() -> None:
            store = Store()
            async with running(watcher(store)):
                pass
            ids = appended(table, 1)
            async with running(watcher(store)) as fired:
                await fired.wait(1)
                assert fired.ids == ids

        asyncio.run(watch())

    @pytest.mark.services
    def test_an_event_that_was_taken_counts_though_the_generator_is_closed_there(self, table):
        async def watch() -> list[int]:
            store, ids = Store(), []
            for _ in range(3):
                events = watcher(store, since="beginning").run()
                ids.append(int((await anext(events)).payload["snapshot_id"]))
                await events.aclose()
            return ids

        appended(table, 4)
        assert asyncio.run(watch()) == [each.snapshot_id for each in table.load().snapshots()][:3]

    @pytest.mark.costly
    @confirming
    def test_only_events_that_airflow_has_stored_are_done(self, table):
        async def watch() -> None:
            store, triggerer = Store(), Triggerer()
            (fired,) = await triggerer.start(watcher(store))
            stored = await asyncio.to_thread(appended, table, 2)
            await fired.wait(2)
            triggerer.store_events()
            await looked(watcher(), times=4)
            lost = await asyncio.to_thread(appended, table, 2)
            await fired.wait(4)
            await triggerer.stop()  # killed before its database has these
            assert fired.ids == [*stored, *lost]
            triggerer = Triggerer()
            (fired,) = await triggerer.start(watcher(store))
            await fired.wait(2)
            assert fired.ids == lost
            triggerer.store_events()
            await looked(watcher(), times=4)
            await triggerer.stop()
            triggerer = Triggerer()
            (fired,) = await triggerer.start(watcher(store))
            await triggerer.stop()
            assert fired.ids == []

        asyncio.run(watch())

    @pytest.mark.costly
    @confirming
    def test_a_store_that_is_away_is_tried_again(self, table, caplog):
        async def watch() -> None:
            store, triggerer = Store(), Triggerer()
            (fired,) = await triggerer.start(watcher(store))
            store.is_away = True
            ids = await asyncio.to_thread(appended, table, 1)
            await fired.wait(1)
            triggerer.store_events()
            await looked(watcher(), times=4)
            store.is_away = False
            await looked(watcher(), times=6)
            await triggerer.stop()
            async with running(watcher(store)) as again:
                assert (fired.ids, again.ids) == (ids, [])

        asyncio.run(watch())
        assert "cannot store the watermark of watched table s.t" in caplog.text

    @pytest.mark.costly
    def test_a_changed_filter_goes_on_where_the_watcher_was(self, table):
        async def watch() -> None:
            store = Store()
            async with running(watcher(store)):
                pass
            ids = appended(table, 2)
            async with running(watcher(store, min_records=1)) as fired:
                await fired.wait(2)
                assert fired.ids == ids

        asyncio.run(watch())

    @pytest.mark.costly
    def test_equal_watchers_of_two_assets_are_one_trigger_and_have_one_watermark(self, table):
        async def watch() -> None:
            old, new = Store(), Store()
            async with running(watcher(old)):
                pass
            async with running(watcher(SimpleNamespace(_by_name={"a": old, "b": new}))):
                pass
            assert old.values == new.values != {}

        asyncio.run(watch())


class TestALookThatFails:
    """A table that is missing is said loudly; nothing ends the watcher."""

    @pytest.mark.costly
    def test_a_missing_table_is_reported_and_its_first_snapshot_fires(self, lake, caplog):
        async def watch() -> None:
            async with running(watcher(missing_after=3)) as fired:
                await looked(watcher(), times=4)
                await asyncio.to_thread(lake.create)
                ids = await asyncio.to_thread(appended, lake, 1)
                await fired.wait(1)
                assert fired.ids == ids

        asyncio.run(watch())
        told = [(record.levelno, record.getMessage()) for record in caplog.records]
        assert any("s.t is missing for 3 polls" in text and level == logging.ERROR for level, text in told)

    @pytest.mark.costly
    def test_a_store_that_is_away_delays_events(self, table, monkeypatch):
        real, refused = SqlCatalog.load, []

        def load(catalog: SqlCatalog, name: Any) -> Any:
            if len(refused) < 3:
                refused.append(name)
                raise StorageError("the disk is away")
            return real(catalog, name)

        async def watch() -> None:
            async with running(watcher(since="beginning")) as fired:
                await fired.wait(1)

        monkeypatch.setattr(SqlCatalog, "load", load)
        asyncio.run(watch())
        assert len(refused) == 3


class TestWhatIsGivenWrong:
    """The DAG file does not even import."""

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"operations": ["apend"]}, "apend"),
            ({"since": "yesterday"}, "since='yesterday'"),
            ({"poll_interval": 0}, "poll_interval is 0, expected a length of time above 0"),
            ({"poll_interval": "soon"}, "poll_interval is 'soon', expected a timedelta or a number"),
            ({"poll_interval": None}, "poll_interval is None, expected"),
            ({"missing_after": 0}, "missing_after is 0, expected a whole number, 1 or more"),
            ({"missing_after": "x"}, "missing_after is 'x', expected a whole number"),
            ({"min_records": "many"}, "min_records is 'many', expected a whole number"),
            ({"min_records": True}, "min_records is True, expected a whole number"),
            ({"coalesce": "no"}, "coalesce is 'no', expected true or false"),
            ({"include_maintenance": 1}, "include_maintenance is 1, expected true or false"),
            ({"iceberg_conn_id": None}, "iceberg_conn_id is None, expected a name as text"),
            ({"branch": ""}, "branch is the text '', expected a name as text"),
            ({"partition": "day=1"}, "partition is the text 'day=1', expected names of partition fields"),
        ],
    )
    def test_it(self, options, message):
        with pytest.raises(InvalidInputError, match=message):
            watcher(**options)


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was asked of the catalog, and what was read of metadata."""
    asked: list[str] = []

    def counted(name: str) -> Callable[..., Any]:
        real = getattr(SqlCatalog, name)

        def call(*arguments: Any, **options: Any) -> Any:
            asked.append(name)
            return real(*arguments, **options)

        return call

    for name in ("read_pointer", "read_metadata"):
        monkeypatch.setattr(SqlCatalog, name, counted(name))
    return asked


class TestOnePollForAll:
    """All who wait for a table share one look; it ends with the last of them."""

    @pytest.mark.costly
    @confirming
    def test_of_watchers_with_different_filters_and_branches(self, table, requests):
        async def watch() -> None:
            triggers = [watcher(min_records=number, poll_interval=3600) for number in range(50)]
            triggers += [watcher(branch="audit", poll_interval=3600)]
            triggerer = Triggerer()
            requests.clear()
            triggerer.begin(*triggers)
            async with asyncio.timeout(60):
                while None in [trigger._seen for trigger in triggers]:
                    await asyncio.sleep(0.01)
            assert requests == ["read_pointer", "read_metadata"]
            await triggerer.stop()

        asyncio.run(watch())

    @pytest.mark.costly
    def test_an_unchanged_table_costs_one_small_request_a_look(self, table, requests):
        async def watch() -> None:
            looks = count()
            requests.clear()
            async for _ in poll_of(CONN_ID, "s.t").answers(0.05, lambda look: next(looks) or None):
                if next(looks) > 10:
                    break
            assert requests.count("read_metadata") == 1

        asyncio.run(watch())

    def test_the_smallest_interval_counts_while_its_waiter_is_there(self, table, requests):
        async def watch() -> None:
            poll = poll_of(CONN_ID, "s.t")
            slow = aiter(poll.answers(3600, lambda look: True))
            await anext(slow)
            fast = poll.answers(0.05, lambda look: True)
            for _ in range(3):
                await anext(fast)
            await fast.aclose()
            assert poll_of(CONN_ID, "s.t") is poll
            await slow.aclose()
            assert poll_of(CONN_ID, "s.t") is not poll

        asyncio.run(watch())

    @pytest.mark.services
    def test_an_error_of_one_waiter_is_its_own(self, table):
        async def watch() -> None:
            def fail(_: Any) -> None:
                raise NotFoundError("no branch")

            poll = poll_of(CONN_ID, "s.t")
            good, bad = poll.answers(0.05, lambda look: look.state is not None), poll.answers(0.05, fail)
            first, second = await asyncio.gather(anext(good), anext(bad), return_exceptions=True)
            assert first is True
            assert isinstance(second, NotFoundError)
            assert await anext(good)
            await good.aclose()

        asyncio.run(watch())
