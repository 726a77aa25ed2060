"""Deferred tasks on a YARN that lies, forgets, refuses, or has applications of strangers under the tag of a task.

What it says decides only when a task goes on and what a message says; rows come from what the job has signed. Against a
stand-in.
"""

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_iceberg.backends import following
from airflow_iceberg.backends.applications import TAGS, Applications, work_tag
from airflow_iceberg.backends.yarn import ResourceManager
from airflow_iceberg.errors import IcebergError
from airflow_iceberg.operators import IcebergAppendOperator
from airflow_iceberg.triggers import IcebergJobTrigger
from tests.airflow.conftest import first_event, operators
from tests.support.stand_in_yarn import StandInYarn, Submitted

KEY, UUID = "dag/run/home/task/-1/1", "uuid-of-the-table"
append = operators(IcebergAppendOperator, task_id="append", deferrable=True, poll_interval=0.1)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandInYarn]:
    made = StandInYarn(tmp_path)
    monkeypatch.setenv("SPARK_HOME", str(made.home))
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(made.connection))
    yield made
    made.close()


def add(cluster: StandInYarn, tags: str) -> Submitted:
    number = len(cluster.submitted) + 1
    cluster.submitted.append(Submitted(id=f"application_1_{number:04d}", argv=["--conf", f"{TAGS}={tags}"], private={}))
    return cluster.submitted[-1]


def manager(cluster: StandInYarn) -> ResourceManager:
    return ResourceManager([cluster.url], user="etl")


def applications(cluster: StandInYarn, uuid: str = UUID) -> Applications:
    return Applications(KEY, uuid, lambda: manager(cluster))


class TestWhatHasTheTagOfATask:
    """It is ended before the task submits its own, if it can be; nothing of another task or table is."""

    def test_that_of_another_user_does_not_keep_it_from_ending_its_own(self, cluster, caplog):
        tag = work_tag(KEY, UUID)
        strangers, own = add(cluster, tag), add(cluster, tag)
        cluster.forbidden.add(strangers.id)
        applications(cluster).end_earlier()
        assert (strangers.state, own.state) == ("RUNNING", "KILLED")
        assert f"refuses PUT apps/{strangers.id}/state with status 403" in caplog.text
        assert "only what the last try reports is committed" in caplog.text

    def test_that_of_another_table_or_task_is_left_alone(self, cluster):
        others = [
            add(cluster, work_tag(KEY, "another-table")),
            add(cluster, work_tag(KEY.replace("task", "other"), UUID)),
            add(cluster, f"{work_tag(KEY, UUID)}-longer"),
        ]
        own = add(cluster, f"mine,{work_tag(KEY.replace('/1', '/2'), UUID).upper()}")
        applications(cluster).end_earlier()
        assert [one.state for one in others] == ["RUNNING"] * 3
        # YARN keeps tags in lower case, and a cleared task is the same work.
        assert own.state == "KILLED"

    def test_two_tries_at_once_end_only_what_is_theirs(self, cluster):
        first, second = applications(cluster), applications(cluster)
        old = add(cluster, first.tags("mine"))
        second.end_earlier()
        assert old.state == "KILLED"
        new = add(cluster, second.tags(None))
        # The first try notices only now that it was given up.
        first.end_own(was_killed=False)
        assert new.state == "RUNNING"
        second.end_own(was_killed=False)
        assert new.state == "KILLED"


class TestAnAnswerAboutAnApplication:
    """It counts if it is about the application that was submitted, by its id and its tag."""

    @pytest.fixture
    def one(self, cluster: StandInYarn) -> Submitted:
        return add(cluster, "airflow-iceberg-submission-1")

    @pytest.fixture
    def reference(self, cluster: StandInYarn, one: Submitted) -> dict[str, Any]:
        found = manager(cluster).reference("airflow-iceberg-submission-1", None)
        return json.loads(json.dumps(found))

    @pytest.mark.parametrize(
        "lies",
        [
            {"id": "application_1_0002", "state": "FINISHED"},
            {"applicationTags": "airflow-iceberg-submission-2", "state": "FINISHED"},
            {"applicationTags": "", "state": "KILLED"},
        ],
        ids=["another id", "another submission", "no tag"],
    )
    def test_about_another_one_it_ends_nothing(self, lies, cluster, one, reference):
        cluster.lies = lies
        followed = following.follow(reference)
        assert [followed.look(), followed.look()] == [None, None]
        followed.end()
        assert one.state == "RUNNING"
        cluster.lies = {}
        assert [followed.look(), followed.look()] == [None, None]
        cluster.lies = lies
        assert [followed.look(), followed.look()] == [None, None]
        assert followed.look() == f"YARN does not know {one.id} (any more)"
        cluster.lies = {}
        followed.end()
        assert one.state == "KILLED"

    @pytest.mark.parametrize(
        "answer",
        [
            {"app": {"state": "FINISHED"}},
            {"app": {"id": "../../x", "state": "FINISHED"}},
            {"app": []},
            {"apps": [1], "app": None},
            [],
            "[" * 100_000,
        ],
    )
    def test_that_is_none_is_asked_for_again(self, answer, cluster, one, reference, monkeypatch):
        monkeypatch.setattr(following, "_PATIENCE_S", 0)
        real, asked = cluster.answer, threading.Event()

        def forged(method: str, path: str, *rest: Any) -> Any:
            if asked.is_set() or "/apps/" not in path:
                return real(method, path, *rest)
            asked.set()
            one.state = "FINISHED"
            return 200, answer

        monkeypatch.setattr(cluster, "answer", forged)
        event = first_event(IcebergJobTrigger(reference=reference, poll_interval=0.05))
        assert (event["status"], asked.is_set()) == ("ended", True)
        assert f"{one.id} ended on YARN with state FINISHED" in event["message"]

    @pytest.mark.parametrize("answer", [{"apps": [1]}, {"apps": "x"}, {"apps": {"app": [1]}}])
    def test_about_all_of_them_that_is_none_is_no_empty_list(self, answer, cluster, monkeypatch):
        real = cluster.answer
        monkeypatch.setattr(
            cluster,
            "answer",
            lambda method, path, *rest: (200, answer) if "apps" in path else real(method, path, *rest),
        )
        with pytest.raises(IcebergError, match="YARN's resource manager"):
            manager(cluster).find("a", patience_s=0)

    def test_a_trigger_that_starts_again_while_the_application_ends(self, cluster, one, reference):
        made = IcebergJobTrigger(reference=reference, poll_interval=0.1, left={"a": 1})

        async def stopped() -> None:
            waiting = asyncio.create_task(anext(aiter(made.run())))
            await asyncio.sleep(0.05)
            waiting.cancel()
            await made.cleanup()

        asyncio.run(stopped())
        assert one.state == "RUNNING"
        one.state = "FINISHED"
        _, kwargs = made.serialize()
        assert first_event(IcebergJobTrigger(**json.loads(json.dumps(kwargs))))["left"] == {"a": 1}

    def test_the_lost_answer_to_an_end_is_asked_for_again(self, cluster, one, reference):
        cluster.loses = 2
        following.follow(reference).end()
        assert (one.state, cluster.loses) == ("KILLED", 0)


class TestTheRowsOfAJob:
    """They are those that it has signed for this try, whatever the cluster says."""

    @pytest.mark.services
    def test_a_job_that_is_said_to_have_failed_has_signed_its_result(self, cluster, lake, run_task):
        def finish(one: Submitted) -> None:
            cluster.finish(one)
            cluster.end(one, "FINISHED")
            cluster.lies = {"finalStatus": "FAILED", "diagnostics": "User application exited with status 1"}

        cluster.then = finish
        lake.create()
        run = run_task(append, files=str(lake.write_file("a.parquet", [5])))
        assert (run.state, lake.ids(), lake.staged()) == ("success", [5], [])

    @pytest.mark.services
    def test_a_job_that_is_said_to_have_ended_and_runs_on_adds_nothing(self, cluster, lake, run_task):
        """Its driver ends beside the retry, and finds nothing of its own any more."""
        late: list[str] = []

        def lie(one: Submitted) -> None:
            if len(cluster.submitted) == 1:
                cluster.end(one, "FINISHED")
                return
            try:
                cluster.finish(cluster.submitted[0])
            except IcebergError as error:
                late.append(type(error).__name__)
            cluster.finish(one)

        cluster.then = lie
        lake.create()
        run = run_task(append, files=str(lake.write_file("a.parquet", [5])), retries=1)
        assert (run.state, lake.ids()) == ("success", [5])
        assert len(lake.load().snapshots()) == 1
        assert late == ["NotFoundError"], "the plan of a try that was given up is gone"

    @pytest.mark.services
    def test_the_result_of_the_earlier_try_is_not_that_of_the_retry(self, cluster, lake, run_task):
        kept: list[bytes] = []

        def swap(one: Submitted) -> None:
            cluster.finish(one)
            (path,) = [path for path in lake.staged() if path.name == "result.json"]
            if not kept:
                kept.append(path.read_bytes())
                path.unlink()
            else:
                path.write_bytes(kept[0])

        cluster.then = swap
        lake.create()
        run = run_task(append, files=str(lake.write_file("a.parquet", [5])), retries=1)
        assert "the job result is not the one that was written" in str(run.failures[-1])
        assert lake.ids() == []
