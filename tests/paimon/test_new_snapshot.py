"""What a Paimon sensor waits for, look by look."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from airflow_iceberg.errors import InvalidInputError, NotFoundError
from airflow_iceberg.paimon.new_snapshot import EventKind, PaimonCondition, Seen, look, should_keep
from airflow_iceberg.paimon.table import PaimonTable
from tests.support.memory import MemoryFileIO
from tests.support.paimon_writer import INDEX, PaimonBuilder, encode_row, write_avro

ROOT = "memory:///w/t"
ANY = PaimonCondition()


@pytest.fixture
def builder() -> PaimonBuilder:
    fields = {"id": "BIGINT", "p": "INT"}
    return PaimonBuilder(MemoryFileIO(), ROOT, fields=fields, partition_keys=["p"], primary_keys=["p", "id"])


@pytest.fixture
def table(builder: PaimonBuilder) -> PaimonTable:
    return PaimonTable(ROOT, builder.store)


def found(table: PaimonTable, condition: PaimonCondition = ANY, seen: Seen | None = None) -> int | None:
    _, event = look(table, condition, seen)
    assert event is None or event.kind is EventKind.SNAPSHOT
    return None if event is None else event.snapshot_id


class TestAfterWhatWasSeen:
    """Only snapshots after the last one seen count, and each is judged once."""

    def test_a_table_without_snapshots_is_waited_for(self, table):
        assert look(table, ANY) == (None, None)

    def test_the_latest_snapshot_counts_when_nothing_was_seen(self, builder, table):
        builder.commits(2)
        assert found(table) == 2

    def test_the_last_one_seen_does_not_count_again(self, builder, table):
        builder.commit()
        seen, _ = look(table, ANY)
        assert look(table, ANY, seen) == (seen, None)
        builder.commit()
        assert found(table, ANY, seen) == 2

    def test_an_id_alone_is_enough(self, builder, table):
        builder.commit()
        assert found(table, ANY, Seen(snapshot_id=1)) is None
        assert found(table, ANY, Seen(snapshot_id=0)) == 1

    def test_only_later_ones_than_a_time_count(self, builder, table):
        for time_ms in (1000, 2000, 3000):
            builder.commit(timeMillis=time_ms, commitKind="COMPACT" if time_ms == 3000 else "APPEND")
        appends = ("APPEND",)
        assert found(table, PaimonCondition(after_ms=1999, commit_kinds=appends)) == 2
        assert found(table, PaimonCondition(after_ms=2000, commit_kinds=appends)) is None
        assert found(table, PaimonCondition(after_ms=0)) == 3


class TestWhatCounts:
    """Everything that is asked for has to hold; each filter by itself is in `tests.airflow.test_paimon_sensor`."""

    def test_records_add_up_from_look_to_look(self, builder, table):
        condition, seen = PaimonCondition(min_new_records=10), Seen(snapshot_id=0)
        results = []
        for number in range(3):
            builder.commit([builder.add(f"{number}", partition=(1,), rows=4)])
            new, event = look(table, condition, seen)
            assert new is not None
            seen = new
            results.append(event is not None)
        assert results == [False, False, True]

    def test_zeros_of_two_signs_are_two_partitions(self):
        builder = PaimonBuilder(MemoryFileIO(), ROOT, fields={"p": "DOUBLE"}, partition_keys=["p"])
        builder.commit([builder.add("a", partition=(-0.0,))])
        table = PaimonTable(ROOT, builder.store)
        assert found(table, PaimonCondition(partition={"p": -0.0})) == 1
        assert found(table, PaimonCondition(partition={"p": 0.0})) is None

    @pytest.mark.parametrize(("type_", "value", "message"), [
        ("DATE", 20260101, r"the number 20260101 \(int\) is no value .* of type DATE, expected a date like"),
        ("TIMESTAMP(6)", 20260101, "expected a time like '2026-01-01 10:30:00'"),
        ("TIME(3)", 1030, "expected a time like '10:30'"),
        ("STRING", 20260101, r"the number 20260101 \(int\) is no value of partition key 'p' of type STRING"),
        ("INT", True, r"the truth value True \(bool\) is no value"),
        ("DATE", "soon", "the text 'soon' is no value"),
    ])  # fmt: skip
    @pytest.mark.parametrize("commits", [0, 1])
    def test_a_value_that_a_key_cannot_have_is_an_error_at_the_first_look(self, type_, value, message, commits):
        builder = PaimonBuilder(MemoryFileIO(), ROOT, fields={"p": type_}, partition_keys=["p"])
        for _ in range(commits):
            builder.commit([builder.add("a", partition=(None,))])
        with pytest.raises(InvalidInputError, match=message):
            found(PaimonTable(ROOT, builder.store), PaimonCondition(partition={"p": value}, commit_kinds=("COMPACT",)))

    def test_a_partition_that_is_not_a_number(self):
        builder = PaimonBuilder(MemoryFileIO(), ROOT, fields={"p": "DOUBLE"}, partition_keys=["p"])
        builder.commit([builder.add("a", partition=(float("nan"),))])
        table = PaimonTable(ROOT, builder.store)
        assert found(table, PaimonCondition(partition={"p": "NaN"})) == 1
        assert found(table, PaimonCondition(partition={"p": 0})) is None

    def test_a_tag(self, builder, table):
        builder.commits(2)
        condition = PaimonCondition(tag="done")
        seen, event = look(table, condition)
        assert event is None
        builder.tag("done", 1)
        assert found(table, condition, seen) == 1

    def test_full_compaction(self, builder, table):
        condition = PaimonCondition(fully_compacted=True)
        builder.commit([builder.add("a", partition=(1,)), builder.add("b", partition=(2,), level=5)])
        assert found(table, condition) is None
        assert found(table, PaimonCondition(fully_compacted=True, partition={"p": 2})) == 1
        builder.commit([builder.add("a", partition=(1,), kind=1), builder.add("a", partition=(1,), level=5)])
        assert found(table, condition) == 2

    def test_a_kind_that_does_not_exist_is_refused(self):
        message = r"^unknown commit kind: expected some of APPEND, COMPACT, OVERWRITE, ANALYZE, got 'append'$"
        with pytest.raises(InvalidInputError, match=message):
            PaimonCondition(commit_kinds=("append",))

    def test_a_condition_survives_the_way_to_the_trigger(self):
        condition = PaimonCondition(commit_kinds=("APPEND",), partition={"p": 1}, after_ms=3)
        assert PaimonCondition(**condition.to_dict()) == condition

    def test_records_count_that_came_before_the_watermark_was_reached(self, builder, table):
        """Nearly all rows of a day come while its watermark is still below the day's end."""
        condition = PaimonCondition(min_new_records=10, min_watermark=5)
        builder.commit([builder.add("a", partition=(1,), rows=9)], watermark=4)
        seen, event = look(table, condition)
        assert event is None
        builder.commit([builder.add("b", partition=(1,), rows=1)], watermark=5)
        for start in (None, seen):
            _, event = look(table, condition, start)
            assert event is not None
            assert (event.snapshot_id, event.new_records) == (2, 10)

    def test_enough_records_below_the_watermark_are_not_enough(self, builder, table):
        builder.commit([builder.add("a", partition=(1,), rows=10)], watermark=4)
        assert found(table, PaimonCondition(min_new_records=10, min_watermark=5)) is None


class TestDeletionsAreChanges:
    """A commit may change the rows of a partition by deletion vectors alone, and no data file of it."""

    def vectors(self, builder: PaimonBuilder, *offsets: int) -> str:
        """Write an index manifest with one vector of partition 1 at each of the offsets."""
        name = f"index-manifest-{'-'.join(map(str, offsets))}"
        ranges = [{"f0": f"{offset}.parquet", "f1": offset, "f2": 24, "_CARDINALITY": 1} for offset in offsets]
        line = {
            **{"_VERSION": 1, "_KIND": 0, "_PARTITION": encode_row((1,), builder.partition_types), "_BUCKET": 0},
            **{"_INDEX_TYPE": "DELETION_VECTORS", "_FILE_NAME": "index-1", "_FILE_SIZE": 99},
            **{"_ROW_COUNT": len(offsets), "_DELETIONS_VECTORS_RANGES": ranges},
        }
        builder.write(f"manifest/{name}", write_avro(INDEX, [line]))
        return name

    @pytest.mark.parametrize("start", [None, Seen(snapshot_id=2)])
    def test_in_the_partition_of_the_vectors(self, builder, table, start):
        builder.commit([builder.add("a", partition=(1,)), builder.add("b", partition=(2,))])
        builder.commit(commitKind="OVERWRITE", indexManifest=self.vectors(builder, 1))
        builder.commit(commitKind="OVERWRITE", indexManifest=self.vectors(builder, 1, 34))
        deletion = ("OVERWRITE",)
        assert found(table, PaimonCondition(partition={"p": 1}, commit_kinds=deletion), start) == 3
        assert found(table, PaimonCondition(partition={"p": 2}, commit_kinds=deletion), start) is None

    def test_vectors_that_stay_as_they_were_are_none(self, builder, table):
        builder.commit([builder.add("a", partition=(1,))], indexManifest=self.vectors(builder, 1))
        builder.write("manifest/copy", builder.store.read(f"{ROOT}/manifest/index-manifest-1"))
        builder.commit([builder.add("b", partition=(2,))], indexManifest="copy")
        assert found(table, PaimonCondition(partition={"p": 1}), Seen(snapshot_id=1)) is None

    def test_vectors_that_are_gone_are_one(self, builder, table):
        builder.commit([builder.add("a", partition=(1,))], indexManifest=self.vectors(builder, 1))
        builder.commit(commitKind="OVERWRITE", indexManifest=None)
        assert found(table, PaimonCondition(partition={"p": 1}), Seen(snapshot_id=1)) == 2

    @pytest.mark.parametrize(("kind", "expected"), [("OVERWRITE", 2), ("ANALYZE", None)])
    def test_when_the_snapshot_before_has_expired_a_commit_without_files_is_taken_for_one(
        self, builder, table, kind, expected
    ):
        builder.commit([builder.add("a", partition=(1,))])
        builder.commit(commitKind=kind, indexManifest=self.vectors(builder, 1))
        builder.expire(before=2)
        assert found(table, PaimonCondition(partition={"p": 1}), Seen(snapshot_id=1)) == expected


class TestWhatWentAway:
    """A rollback or a gap of expired snapshots is said as such and never waited through."""

    def seen(self, builder: PaimonBuilder, table: PaimonTable, count: int) -> Seen:
        builder.commits(count)
        seen, _ = look(table, ANY)
        assert seen is not None
        return seen

    def event(self, table: PaimonTable, seen: Seen) -> dict[str, Any]:
        _, event = look(table, ANY, seen)
        assert event is not None
        return event.to_dict()

    def test_a_rollback_is_seen_by_the_smaller_id(self, builder, table):
        seen = self.seen(builder, table, 3)
        builder.roll_back(2)
        event = self.event(table, seen)
        assert (event["event"], event["snapshot_id"], event["seen_snapshot_id"]) == ("rolled_back", "2", "3")

    @pytest.mark.parametrize("more", [1, 2])
    def test_a_rollback_is_seen_when_the_id_was_used_again(self, builder, table, more):
        seen = self.seen(builder, table, 3)
        builder.roll_back(2)
        builder.commits(more)
        event = self.event(table, seen)
        assert (event["event"], event["snapshot_id"]) == ("rolled_back", str(2 + more))

    def test_snapshots_that_expired_unseen_are_named(self, builder, table):
        seen = self.seen(builder, table, 2)
        builder.commits(4)
        builder.expire(before=5)
        event = self.event(table, seen)
        assert (event["event"], event["missed"], event["snapshot_id"]) == ("expired_gap", ["3", "4"], "6")

    def test_one_that_expired_after_it_was_seen_is_no_gap(self, builder, table):
        seen = self.seen(builder, table, 2)
        builder.commit()
        builder.expire(before=3)
        assert found(table, ANY, seen) == 3

    def test_a_table_made_anew_is_a_rollback(self, builder, table):
        seen = self.seen(builder, table, 2)
        builder.store.delete(f"{ROOT}/snapshot/{name}" for name in ("snapshot-1", "snapshot-2", "LATEST"))
        assert self.event(table, seen)["event"] == "rolled_back"
        builder.snapshots.clear()
        for _ in range(3):
            builder.commit(commitUser="another")
        assert self.event(table, seen)["event"] == "rolled_back"

    def test_a_table_that_is_gone_is_an_error(self, builder, table):
        seen = self.seen(builder, table, 1)
        builder.store.delete([status.location for status in builder.store.list(ROOT)])
        with pytest.raises(NotFoundError, match="no Paimon table at"):
            look(table, ANY, seen)

    def test_what_expires_while_it_is_read_is_looked_at_again(self, builder, table):
        for kind in ("COMPACT", "APPEND", "APPEND"):
            builder.commit(commitKind=kind)
        real = table.find_snapshot

        def expiring(number: int) -> Any:
            if number == 2:
                builder.expire(before=3)
            return real(number)

        table.find_snapshot = expiring  # type: ignore[method-assign]
        seen, event = look(table, PaimonCondition(commit_kinds=("COMPACT",)))
        assert (seen, event) == (Seen(snapshot_id=3, identity=table.snapshot(3).identity), None)


class TestTheFirstLook:
    """All snapshots that there are count, the newest one first."""

    def test_an_older_one_counts_when_the_latest_does_not(self, builder, table):
        for kind in ("APPEND", "APPEND", "COMPACT"):
            builder.commit(commitKind=kind)
        assert found(table, PaimonCondition(commit_kinds=("APPEND",))) == 2

    def test_records_of_all_of_them_are_counted(self, builder, table):
        for name in "abc":
            builder.commit([builder.add(name, partition=(1,), rows=4)])
        _, event = look(table, PaimonCondition(min_new_records=12))
        assert event is not None
        assert event.new_records == 12

    def test_of_a_partition_when_one_is_given(self, builder, table):
        builder.commit([builder.add("a", partition=(1,), rows=4), builder.add("b", partition=(2,), rows=9)])
        builder.commit([builder.add("c", partition=(1,), rows=4)], deltaRecordCount=None)
        assert found(table, PaimonCondition(min_new_records=8, partition={"p": "1"})) == 2
        assert found(table, PaimonCondition(min_new_records=9, partition={"p": 1})) is None

    def test_a_tag_may_be_of_one_seen_long_ago(self, builder, table):
        builder.commits(4)
        builder.tag("done", 1)
        builder.expire(before=3)
        assert found(table, PaimonCondition(tag="done")) == 1

    def test_of_a_compacted_partition_the_newest_that_changed_it_counts(self, builder, table):
        condition = PaimonCondition(fully_compacted=True, partition={"p": 1})
        builder.commit([builder.add("a", partition=(1,), level=5)], commitKind="COMPACT")
        builder.commit([builder.add("b", partition=(2,))])
        assert found(table, condition) == 1
        builder.commit([builder.add("c", partition=(1,))])
        builder.commit([builder.add("d", partition=(2,))])
        assert found(table, condition) is None

    def test_full_compaction_of_a_table_without_a_key_is_refused(self):
        builder = PaimonBuilder(MemoryFileIO(), ROOT, fields={"id": "BIGINT"})
        builder.commit([builder.add("a")])
        with pytest.raises(InvalidInputError, match="has no primary key: the files of such a table have no levels"):
            look(PaimonTable(ROOT, builder.store), PaimonCondition(fully_compacted=True))


class TestItsCost:
    """One small read a look, however large the table and long its history."""

    def test_a_look_reads_the_hint_and_a_snapshot(self, builder, table):
        builder.commit([builder.add(f"{number}", partition=(number % 9,)) for number in range(2000)])
        builder.commits(30)
        reads: list[tuple[str, int]] = []
        real = builder.store.read

        def read(location: str, **how: Any) -> bytes:
            data = real(location, **how)
            reads.append((location.removeprefix(ROOT), len(data)))
            return data

        builder.store.read = read  # type: ignore[method-assign]
        seen, event = look(table, ANY, Seen(snapshot_id=31 - 5))
        assert event is not None
        assert [name for name, _ in reads] == ["/snapshot/LATEST", "/snapshot/snapshot-31", "/snapshot/snapshot-26"]
        assert sum(size for _, size in reads) < 10_000
        reads.clear()
        assert look(table, PaimonCondition(min_new_records=1), seen) == (seen, None)
        assert [name for name, _ in reads] == ["/snapshot/LATEST", "/snapshot/snapshot-31"]


class TestWhatIsWorthKeeping:
    """What was seen is written down before half of the snapshots that there are came after it."""

    @pytest.mark.parametrize(
        ("kept", "expired", "expected"), [(None, 0, True), (8, 0, False), (4, 0, True), (8, 7, True), (9, 7, False)]
    )
    def test_by_what_was_kept(self, builder, table, kept, expired, expected):
        builder.commits(10)
        builder.expire(before=expired + 1)
        before = None if kept is None else Seen(snapshot_id=kept)
        # Of 8 to 10, 9 is the middle; of 1 to 10 it is 5.
        assert should_keep(table, before, Seen(snapshot_id=10)) is expected


class TestItIsLight:
    """Sensors are parsed with every DAG file."""

    @pytest.mark.costly
    def test_no_arrow_is_imported(self):
        heavy = "{'pyarrow', 'numpy', 'fastavro'}"
        modules = "airflow_iceberg.paimon.new_snapshot, airflow_iceberg.paimon.table"
        program = f"import sys, {modules}; sys.exit(bool({heavy} & sys.modules.keys()))"
        assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
