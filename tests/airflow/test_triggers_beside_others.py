"""Triggers beside servers that harm who asks, and beside tables with thousands of new snapshots."""

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from airflow_iceberg.backends import following
from airflow_iceberg.catalogs.sql.catalog import SqlCatalog
from airflow_iceberg.errors import StorageError, UnsupportedError
from airflow_iceberg.events import table_events
from airflow_iceberg.format.metadata import json as metadata_json
from airflow_iceberg.triggers import IcebergJobTrigger, IcebergSnapshotTrigger, _look_events, _threads
from airflow_iceberg.triggers._facts import TakesLongError
from airflow_iceberg.triggers._table_poll import TablePoll
from tests.airflow.conftest import CONN_ID, Lake, first_event
from tests.airflow.test_watcher import Store, Triggerer, confirming, running, watcher
from tests.support.hostile_server import BOMBS, DRIPS, HostileServer


async def first(trigger: Any) -> Any:
    async for event in trigger.run():
        return event.payload
    raise AssertionError("the trigger ended without an event")


def snapshot_trigger(conn_id: str = CONN_ID, table: str = "s.t", **options: Any) -> IcebergSnapshotTrigger:
    return IcebergSnapshotTrigger(table=table, iceberg_conn_id=conn_id, poll_interval=0.05, **options)


@pytest.fixture
def dead(monkeypatch) -> Iterator[Callable[[str], str]]:
    """Makes connections to a server that sends a byte now and then, and never ends its answer."""
    monkeypatch.setattr(_threads, "TIMEOUT_S", 0.3)
    with HostileServer(DRIPS["drip of a body"]) as dripping:

        def make(name: str) -> str:
            connection = {"conn_type": "iceberg_catalog", "host": dripping.uri, "extra": {"type": "rest"}}
            monkeypatch.setenv(f"AIRFLOW_CONN_{name.upper()}", json.dumps(connection))
            return name

        yield make
    for _ in range(2_000):  # its answers have ended
        if not _threads._threads._places:
            break
        time.sleep(0.01)
    assert _threads._threads._places == {}


async def ended(tasks: list[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class TestDeadConnections:
    """They hold up the triggers of their own tables, and the event loop of none."""

    def test_forty_tables_of_one_and_ten_others_stop_no_other_trigger(self, lake, dead, caplog):
        lake.create()
        result = lake.append([1])

        async def watch() -> None:
            names = [(dead("dead"), f"s.t{number}") for number in range(40)]
            names += [(dead(f"dead_{number}"), "s.t") for number in range(10)]
            waiting = [asyncio.create_task(first(snapshot_trigger(*each))) for each in names]
            async with asyncio.timeout(60):
                while not any(counts.busy for counts in _threads._threads._places.values()):
                    await asyncio.sleep(0.01)
            async with asyncio.timeout(60):
                event = await first(snapshot_trigger())
            assert event["snapshot"]["snapshot_id"] == str(result.snapshot_id)
            async with asyncio.timeout(60):
                while "is not asked any more" not in caplog.text:
                    await asyncio.sleep(0.05)
            assert max(counts.late for counts in _threads._threads._places.values()) <= 4
            assert (await first(snapshot_trigger()))["status"] == "found"
            assert not any(task.done() for task in waiting)
            await ended(waiting)

        asyncio.run(watch())
        assert "no answer in 0 seconds" in caplog.text

    def test_a_condition_that_is_held_up_is_asked_again(self, lake, dead, monkeypatch):
        lake.create()
        lake.append([1])
        is_over, held = threading.Event(), list[int]()
        real = TablePoll._ask

        def hold(look: Any, asked: Any) -> Any:
            if not held:
                held.append(1)
                is_over.wait(60)
            return answers(look, asked)

        from airflow_iceberg.triggers import _table_poll

        answers = _table_poll._answers
        monkeypatch.setattr(_table_poll, "_answers", hold)
        assert first_event(snapshot_trigger(), 60)["status"] == "found"
        is_over.set()
        assert real is TablePoll._ask

    def test_a_cluster_that_does_not_answer_is_asked_again(self, monkeypatch, dead):
        is_over, looks = threading.Event(), list[int]()

        class Job:
            def look(self) -> str | None:
                looks.append(1)
                if len(looks) == 1:
                    is_over.wait(60)
                return "it ended well"

        monkeypatch.setattr(following, "follow", lambda _: Job())
        trigger = IcebergJobTrigger(reference={"kind": "yarn"}, poll_interval=0.05, left={"a": 1})
        event = first_event(trigger, 60)
        is_over.set()
        assert (event["status"], event["message"], event["left"]) == ("ended", "it ended well", {"a": 1})


class TestHostileAnswers:
    """Whatever a server sends, others go on."""

    @pytest.mark.services
    @pytest.mark.parametrize("kind", [*BOMBS, *DRIPS])
    def test_it(self, kind, lake, monkeypatch):
        lake.create()
        lake.append([1])
        monkeypatch.setattr(_threads, "TIMEOUT_S", 2)
        with HostileServer({**BOMBS, **DRIPS}[kind]) as hostile:
            connection = {"conn_type": "iceberg_catalog", "host": hostile.uri, "extra": {"type": "rest"}}
            monkeypatch.setenv("AIRFLOW_CONN_HOSTILE", json.dumps(connection))

            async def watch() -> None:
                task = asyncio.create_task(first(snapshot_trigger("hostile", wait_for_table=True)))
                while not hostile.seen and not task.done():
                    await asyncio.sleep(0.01)
                for _ in range(3):
                    async with asyncio.timeout(30):
                        assert (await first(snapshot_trigger()))["status"] == "found"
                with suppress(asyncio.CancelledError):
                    await ended([task])

            began = time.monotonic()
            asyncio.run(watch())
            assert time.monotonic() - began < 60


def test_metadata_of_more_than_is_read_ends_the_wait(lake, monkeypatch):
    lake.create()
    lake.append([1])
    path = lake.folder / "warehouse" / "s" / "t" / "metadata"
    (newest,) = path.glob("00001-*.metadata.json")
    newest.write_bytes(newest.read_bytes() + b" " * (65 << 20))
    event = first_event(snapshot_trigger(), 60)
    assert "has more than 67108864 bytes, which are not read here" in event["message"]


def many_snapshots(lake: Lake, count: int) -> list[int]:
    """Register a table `s.many` with so many snapshots after its first one, all with the same files."""
    document = metadata_json.to_dict(lake.load().metadata)
    (made,) = document["snapshots"]
    ids = [10**6 + number for number in range(count + 1)]
    document["snapshots"] = [
        {**made, "snapshot-id": each, "sequence-number": number + 1, "timestamp-ms": made["timestamp-ms"] + number}
        | ({"parent-snapshot-id": each - 1} if number else {})
        for number, each in enumerate(ids)
    ]
    document |= {"current-snapshot-id": ids[-1], "last-sequence-number": count + 1, "snapshot-log": []}
    document["refs"] = {"main": {"snapshot-id": ids[-1], "type": "branch"}}
    path = lake.folder / "warehouse" / "s" / "t" / "metadata" / "00009-many.metadata.json"
    path.write_text(json.dumps(document))
    lake.catalog.register_table("s.many", path.as_uri())
    return ids[1:]


def told(events: list[dict[str, Any]]) -> list[int]:
    """Return the snapshots that events stand for, each as often as it is told; ids follow each other."""
    found = []
    for event in events:
        last, count = int(event["snapshot_id"]), event.get("snapshot_count", 1)
        found += range(int(event.get("first_snapshot_id", last)), last + 1)
        assert len(range(int(event.get("first_snapshot_id", last)), last + 1)) == count
    return found


@pytest.fixture
def many(lake: Lake) -> list[int]:
    lake.create()
    lake.append([1])
    return many_snapshots(lake, 1_000)


class TestThousandsOfNewSnapshots:
    """Some hundred have an event of their own, and those after them one that says how many they are."""

    @pytest.mark.costly
    def test_ten_thousand_at_the_first_look(self, lake):
        lake.create()
        lake.append([1])
        ids = many_snapshots(lake, 10_000)

        async def watch() -> list[dict[str, Any]]:
            store = Store()
            async with running(watcher(store, table="s.many", since=str(ids[0] - 1))) as fired:
                await fired.wait(_look_events.MOST_EVENTS + 1)
            async with running(watcher(store, table="s.many")) as again:
                pass
            assert again.events == []
            return fired.events

        events = asyncio.run(watch())
        assert told(events) == ids
        assert len(events) == _look_events.MOST_EVENTS + 1
        *single, last = events
        assert all("snapshot_count" not in event for event in single)
        assert (last["snapshot_count"], last["added_records"]) == (9_800, 9_800)
        assert last["partitions"] is None
        extra = [{"from_trigger": True, "payload": json.loads(json.dumps(each))} for each in (single[0], last)]
        one, rest = table_events([type("Event", (), {"extra": each})() for each in extra])
        assert (one.snapshot_count, one.first_snapshot_id, one.snapshot_id) == (1, ids[0], ids[0])
        assert (rest.snapshot_count, rest.first_snapshot_id, rest.snapshot_id) == (9_800, ids[200], ids[-1])

    @pytest.mark.costly
    @pytest.mark.parametrize("coalesce", [False, True])
    def test_a_restart_after_any_event_loses_none_and_doubles_none(self, lake, many, coalesce):
        async def watch() -> list[dict[str, Any]]:
            store, events = Store(), list[dict[str, Any]]()
            # All of them come, however busy the machine is; of those that are one together, only the first.
            patience_s = 3 if coalesce else 60
            for taken in (1, 199, 1, 150, 201):
                one = watcher(store, table="s.many", since=str(many[0] - 1), coalesce=coalesce).run()
                with suppress(TimeoutError):
                    for _ in range(taken):
                        events.append((await asyncio.wait_for(anext(one), patience_s)).payload)
                await one.aclose()
            return events

        events = asyncio.run(watch())
        assert told(events) == many
        assert len(events) == (1 if coalesce else 1 + 199 + 1 + 150 + 201)

    @pytest.mark.costly
    @pytest.mark.parametrize("coalesce", [False, True])
    def test_a_look_whose_time_is_over_goes_on_with_the_next(self, lake, many, coalesce, monkeypatch):
        monkeypatch.setattr(_look_events, "_LOOK_S", 0.02)

        async def watch() -> list[dict[str, Any]]:
            trigger = watcher(Store(), table="s.many", since=str(many[0] - 1), coalesce=coalesce)
            async with running(trigger) as fired:
                async with asyncio.timeout(60):
                    while not fired.events or int(fired.events[-1]["snapshot_id"]) != many[-1]:
                        await asyncio.sleep(0.01)
            return fired.events

        events = asyncio.run(watch())
        assert told(events) == many
        assert len(events) > 1

    @pytest.mark.costly
    @confirming
    def test_two_triggerers_one_after_the_other(self, lake, many):
        async def watch() -> list[dict[str, Any]]:
            store, events = Store(), list[dict[str, Any]]()
            for _ in range(2):
                triggerer = Triggerer()
                (fired,) = triggerer.begin(watcher(store, table="s.many", since=str(many[0] - 1)))
                if not events:
                    await fired.wait(_look_events.MOST_EVENTS + 1)
                    triggerer.store_events()
                async with asyncio.timeout(60):
                    while not store.values:
                        await asyncio.sleep(0.01)
                events += fired.events
                await triggerer.stop()
            return events

        assert told(asyncio.run(watch())) == many

    @pytest.mark.costly
    @pytest.mark.parametrize("error", [TakesLongError("x"), UnsupportedError("x")])
    def test_a_snapshot_whose_manifests_take_long_fires(self, lake, many, error, monkeypatch):
        from airflow_iceberg.triggers._facts import TableFacts

        def fail(*_: object) -> None:
            raise error

        monkeypatch.setattr(TableFacts, "touched", fail)

        async def watch() -> list[dict[str, Any]]:
            async with running(watcher(table="s.many", since=str(many[-3]))) as fired:
                await fired.wait(2)
            return fired.events

        events = asyncio.run(watch())
        assert told(events) == many[-2:]
        assert [event["partitions"] for event in events] == [None, None]


def test_what_a_large_snapshot_touched_is_read_once_for_all_who_ask_in_turn(lake, monkeypatch):
    lake.create()
    lake.append([1])
    from airflow_iceberg.scan.metadata_tables import Inspection
    from airflow_iceberg.triggers import _facts

    monkeypatch.setattr(_facts, "_MOST_KEPT_BYTES", 0)
    looks, real = [], Inspection.touched_partitions
    monkeypatch.setattr(Inspection, "touched_partitions", lambda *given: looks.append(given) or real(*given))
    facts = _facts.TableFacts(lake.catalog, lake.catalog.load("s.t"))
    snapshot = facts._state.metadata.current_snapshot()
    assert facts.touched(snapshot) == facts.touched(snapshot)
    assert len(looks) == 1


def test_the_time_for_facts_ends_at_the_next_file(lake):
    lake.create()
    lake.append([1])
    from airflow_iceberg.triggers import _facts

    catalog = lake.catalog
    facts = _facts.TableFacts(catalog, catalog.load("s.t"))
    snapshot = facts._state.metadata.current_snapshot()
    with _facts.within(-1), pytest.raises(TakesLongError):
        facts.partitions(snapshot.snapshot_id)
    assert len(facts.partitions(snapshot.snapshot_id)) == 1
    assert isinstance(catalog, SqlCatalog)
    assert not issubclass(TakesLongError, StorageError)
