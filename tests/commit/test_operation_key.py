"""The operation key: who made a commit, and how a table is asked about it."""

import dataclasses
from urllib.parse import quote

import pytest

from airflow_iceberg.commit.operation_key import Kin, OperationKey, check_properties, epoch_of, kin_of
from airflow_iceberg.commit.runs.names import mark_of, parts_of
from airflow_iceberg.commit.write_result import WriteResult
from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.format.snapshots import Snapshot

KEY = OperationKey(dag_id="load", run_id="scheduled__2026-01-01T00:00:00+00:00", task_id="group.append")


class TestTheTextOfAKey:
    """A key is dag id, run id, task id, map index and clear epoch, joined by slashes."""

    def test_the_text_is_readable(self):
        assert str(KEY) == "load/scheduled__2026-01-01T00:00:00+00:00/group.append/-1/0"

    def test_a_slash_in_a_run_id_cannot_make_two_keys_look_alike(self):
        one = OperationKey(dag_id="a", run_id="b/c", task_id="d")
        two = OperationKey(dag_id="a", run_id="b", task_id="c/d")
        assert str(one) != str(two)
        assert str(one) == "a/b%2Fc/d/-1/0"

    @pytest.mark.parametrize("run_id", ["manual__x", "a/b%2Fc", "ünïcode ✓", "%", "", "a b+c@d"])
    def test_parsing_gives_the_key_back(self, run_id):
        key = OperationKey(dag_id="d.e-f", run_id=run_id, task_id="t", map_index=7, epoch=3)
        assert OperationKey.parse(str(key)) == key

    @pytest.mark.parametrize(
        "text", ["", "a/b/c", "a/b/c/x/0", "a/b/c/0/-1", "a/b/i/c/0/1/2", "a/b//c/0/1", "a/b/c/0/" + "9" * 5000]
    )
    def test_anything_else_is_refused(self, text):
        with pytest.raises(InvalidInputError):
            OperationKey.parse(text)

    @pytest.mark.parametrize("installation", ["prod", "a/b", "eu west"])
    def test_the_installation_is_a_part_of_it(self, installation):
        key = dataclasses.replace(KEY, installation=installation)
        assert str(key) == f"load/{KEY.run_id}/{quote(installation, safe=' ')}/group.append/-1/0"
        assert OperationKey.parse(str(key)) == key
        assert key.file_token != KEY.file_token

    def test_the_earliest_start_is_not_part_of_the_key(self):
        later = OperationKey(dag_id="load", run_id=KEY.run_id, task_id=KEY.task_id, run_after_ms=5)
        assert str(later) == str(KEY)


START = 1_795_000_000_123_456


def key_of(*, started_us=START, clears=0, max_tries=2, try_number=1, installation="prod", **changes):
    return dataclasses.replace(
        KEY,
        installation=installation,
        epoch=epoch_of(started_us=started_us, clear_number=clears, max_tries=max_tries),
        try_number=try_number,
        started_ms=started_us // 1000 or None,
        older_epoch=0,
        **changes,
    )


def kin(key, other, *, timestamp_ms=START // 1000 + 5, try_number=None):
    number = try_number or other.try_number or 1
    snapshot = Snapshot(
        snapshot_id=1,
        sequence_number=1,
        timestamp_ms=timestamp_ms,
        manifest_list="memory://m",
        summary={"operation": "append", **other.summary(number)},
    )
    return kin_of(key, str(other), snapshot)


class TestWhoseCommitItIs:
    """What Airflow tells of run and task decides: start, number of clears, `max_tries`, number of the try."""

    def test_tries_of_one_epoch_are_the_same_work(self):
        assert kin(key_of(try_number=2), key_of()) is Kin.SAME

    @pytest.mark.parametrize(
        "cleared",
        [
            key_of(clears=1, max_tries=3, try_number=2),
            # Airflow before 3.3 counts no clear of a task in a run that has not ended.
            key_of(max_tries=3, try_number=2),
            # The retries were reduced by the number of tries before the task was cleared.
            key_of(clears=1, max_tries=2, try_number=2),
            # ... and by more.
            key_of(max_tries=1, try_number=2),
            key_of(started_us=START + 1, clears=1, max_tries=3, try_number=2),
            # A run that was deleted and created again: its tries begin with 1 again.
            key_of(started_us=START + 7_000_000),
            key_of(started_us=START + 7_000_000, max_tries=1),
        ],
    )
    def test_a_clear_or_a_new_run_of_the_same_name_is_later_work(self, cleared):
        assert kin(cleared, key_of()) is Kin.EARLIER
        assert kin(key_of(), cleared) is Kin.LATER

    @pytest.mark.parametrize("start", [START, START + 1_000])
    def test_another_installation_is_other_work(self, start):
        other = key_of(started_us=start, installation="staging")
        assert kin(key_of(started_us=START + 2), other) is None

    def test_unless_it_has_the_same_run_to_the_microsecond(self):
        """The workers of one installation may be configured with different addresses."""
        assert kin(key_of(), key_of(installation="elsewhere")) is Kin.SAME
        at_once = START // 1_000_000 * 1_000_000
        assert kin(key_of(started_us=at_once), key_of(started_us=at_once, installation="elsewhere")) is None

    def test_a_key_of_the_first_form_is_known(self):
        old = dataclasses.replace(KEY, epoch=0)
        assert kin(key_of(try_number=2), old) is Kin.SAME
        assert kin(key_of(try_number=3, clears=1), dataclasses.replace(old, epoch=1), try_number=4) is Kin.LATER
        cleared = dataclasses.replace(key_of(try_number=3, clears=1, max_tries=4), older_epoch=2)
        assert kin(cleared, old) is Kin.EARLIER

    def test_a_key_of_the_first_form_from_before_the_run_is_of_an_earlier_one(self):
        assert kin(key_of(), KEY, timestamp_ms=START // 1000 - 3_600_000) is Kin.EARLIER

    def test_text_that_only_looks_like_a_key_is_other_work(self):
        own = key_of()
        for text in (f"{own.work}/x", f"{own.work}/1/2", f"{own.work}/", f"{own.run}//{own.task_id}/-1/1"):
            assert kin_of(own, text, Snapshot(snapshot_id=1, timestamp_ms=1, summary={}, manifest_list="m")) is None


class TestTheTokenInFileNames:
    """Files of one piece of work carry the same token before and after a clear, and no other work does."""

    def test_a_clear_keeps_the_token(self):
        cleared = OperationKey(dag_id=KEY.dag_id, run_id=KEY.run_id, task_id=KEY.task_id, epoch=1)
        assert cleared.file_token == KEY.file_token

    def test_mapped_tasks_have_tokens_of_their_own(self):
        mapped = [
            OperationKey(dag_id=KEY.dag_id, run_id=KEY.run_id, task_id=KEY.task_id, map_index=index)
            for index in range(20)
        ]
        assert len({key.file_token for key in mapped}) == 20

    @pytest.mark.parametrize(
        ("more", "index", "is_by_key", "has_item"),
        [
            ({}, -1, False, False),
            ({"map_index": 3}, 3, False, False),
            ({"map_index": 3, "item": "x"}, 3, False, True),
            ({"map_index": 3, "item": "x", "write_key": "a/b"}, -1, True, False),
        ],
    )
    @pytest.mark.parametrize("folder", ["", "s3://b/data/", "s3://b/data/00110101-"])
    def test_a_mark_tells_run_task_and_index(self, more, index, is_by_key, has_item, folder):
        key = dataclasses.replace(KEY, epoch=7, **more)
        path = f"{folder}{key.file_prefix(2, '0123456789ab')}-00000-0a1b2c3d-0a1b-0a1b-0a1b-0123456789ab.parquet"
        assert parts_of(path) == (key.file_token, 7, 2)
        mark = mark_of(path)
        assert mark == key.mark
        assert (mark.index, mark.is_by_key, mark.item is not None) == (index, is_by_key, has_item)
        assert (mark.run, mark.task) == (KEY.mark.run, KEY.mark.task)
        assert mark.run != dataclasses.replace(key, run_id="other").mark.run
        assert mark.task != dataclasses.replace(key, task_id="other").mark.task
        assert mark_of(key.carried_prefix(2, "0123456789ab") + "-00000.parquet") is None

    def test_names_of_older_versions_have_none(self):
        path = f"{KEY.file_token}-7-2-0123456789ab-00000-0a1b2c3d.parquet"
        assert (parts_of(path), mark_of(path)) == ((KEY.file_token, 7, 2), None)


class TestWhatGoesIntoTheSummary:
    """Each snapshot tells which task made it; nobody else may write these entries."""

    def test_all_parts_are_there_as_text(self):
        assert KEY.summary(2) == {
            "airflow.operation-key": str(KEY),
            "airflow.dag-id": "load",
            "airflow.run-id": "scheduled__2026-01-01T00:00:00+00:00",
            "airflow.task-id": "group.append",
            "airflow.map-index": "-1",
            "airflow.try-number": "2",
        }

    @pytest.mark.parametrize("name", ["airflow.operation-key", "airflow.anything", "operation"])
    def test_a_user_cannot_overwrite_them(self, name):
        with pytest.raises(InvalidInputError, match=f"snapshot property '{name}' is written by the commit itself"):
            check_properties({name: "x"})

    def test_a_value_that_is_not_text_is_refused(self):
        with pytest.raises(InvalidInputError, match="snapshot property 'ticket': expected text, got the number 7"):
            check_properties({"ticket": 7})


class TestWhatGoesIntoXCom:
    """XCom holds ids and counts; ids of 64 bits are text."""

    def test_the_snapshot_id_is_text(self):
        result = WriteResult(table="a.b", branch="main", outcome="committed", snapshot_id=2**62 + 1)
        assert result.to_xcom()["snapshot_id"] == "4611686018427387905"

    @pytest.mark.parametrize(("outcome", "by_this_try"), [("committed", True), ("found", False), ("nothing", False)])
    def test_it_says_whether_this_try_did_the_work(self, outcome, by_this_try):
        assert WriteResult(table="a.b", branch="main", outcome=outcome).to_xcom()["done_by_this_try"] is by_this_try
