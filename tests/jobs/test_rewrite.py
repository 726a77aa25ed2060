"""Rewriting files of a table: the same rows in other files, whatever the files were."""

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_iceberg.catalogs.base import TableState
from airflow_iceberg.data.dictionaries import dictionary_columns
from airflow_iceberg.data.write import ordering
from airflow_iceberg.data.write import sorted as sorted_write
from airflow_iceberg.errors import FormatError, IcebergError
from airflow_iceberg.format.manifests.entries import DataFile
from airflow_iceberg.format.schemas.arrow import schema_to_arrow
from airflow_iceberg.format.sort_orders import sort_order_from_shorthand
from airflow_iceberg.jobs import compact_sorted, exchange
from airflow_iceberg.jobs.compact import group_outputs
from airflow_iceberg.jobs.protocol.plan import JobPlan
from airflow_iceberg.jobs.protocol.result import GroupOutput
from airflow_iceberg.jobs.protocol.seal import SealedFile
from airflow_iceberg.jobs.protocol.staged_files import staged_files
from airflow_iceberg.jobs.protocol.table_input import FileUnit, cut_group, read_work
from airflow_iceberg.jobs.run_local import run_local
from airflow_iceberg.jobs.spark.worker import Worker
from airflow_iceberg.jobs.task import CompactItem, TaskReport
from airflow_iceberg.operations.compact_job import Compaction, plan_compaction, write_compact_plan
from airflow_iceberg.operations.work import Work
from airflow_iceberg.plan.compact import RewriteOptions
from airflow_iceberg.table import Table
from tests.jobs.builders import IO
from tests.support import builders, golden
from tests.support.data_files import read_file

# Tables whose rows would have to be understood to be written again, and the one of a format that is not finished.
LEFT_OUT = [name for name, table in golden.tables().items() if table.is_refused or "geo" in name]


def new_table(folder: Path, **properties: str) -> Table:
    schema = {"id": "long", "day": "date", "name": "string"}
    return builders.new_table(folder, schema=schema, partition_by=["day"], properties=properties)


def rows(ids: range) -> pa.Table:
    days = pa.array([number % 2 for number in ids], pa.int32()).cast(pa.date32())
    return pa.table({"id": pa.array(ids, pa.int64()), "day": days, "name": [f"n{number}" for number in ids]})


def filled_table(folder: Path, count: int = 50) -> Table:
    """A table with rows in five files of each partition."""
    table = new_table(folder)
    for start in range(0, count, count // 5):
        table.append(rows(range(start, start + count // 5)))
    return table


def compaction_of(table: Table, **options: object) -> Compaction:
    return plan_compaction(table.scan(), RewriteOptions.of({"rewrite-all": True, **options}, table.properties))


def run(table: Table, plan: JobPlan) -> list[DataFile]:
    result = run_local(plan, table.io)
    result.raise_for_error()
    return list(staged_files(plan, result))


def rewrite(table: Table, *, zorder_columns: tuple[str, ...] = (), **options: object) -> list[DataFile]:
    compaction = compaction_of(table, **options)
    return run(table, write_compact_plan(Work(table), compaction, zorder_columns=zorder_columns))


def read(table: Table, files: list[DataFile], columns: tuple[str, ...] = ("*",)) -> pa.Table:
    projection = table.scan(selected_fields=columns).projection
    batches = [
        batch
        for file in files
        for batch in read_file(table.io, file, schema=projection, spec=table.metadata.spec(file.spec_id))
    ]
    return pa.Table.from_batches(batches, schema=schema_to_arrow(projection, with_field_ids=False))


def as_lines(table: pa.Table) -> list[str]:
    return sorted(map(repr, table.to_pylist()))


def check_rows(table: Table, files: list[DataFile], columns: tuple[str, ...] = ("*",)) -> None:
    """Files hold the rows that a scan of the table returns."""
    assert as_lines(read(table, files, columns)) == as_lines(table.scan(selected_fields=columns).to_arrow())


class TestRows:
    """The rows that come out are those that a scan returns."""

    @pytest.mark.costly
    def test_small_files_become_one_for_each_partition_in_the_order_of_the_scan(self, tmp_path):
        table = filled_table(tmp_path)
        files = rewrite(table)
        assert sorted(file.record_count for file in files) == [25, 25]
        assert {file.partition for file in files} == {(0,), (1,)}
        scanned = table.scan().to_arrow()["id"].to_pylist()
        for file in files:
            (parity,) = file.partition
            assert read(table, [file])["id"].to_pylist() == [number for number in scanned if number % 2 == parity]

    def test_rows_go_to_the_partitions_of_another_spec(self, tmp_path):
        table = new_table(tmp_path)
        table.append(rows(range(20)))
        table.alter([{"add_partition_field": "bucket(4, id)"}])
        files = rewrite(table)
        assert all(len(file.partition) == 2 for file in files)
        check_rows(table, files)

    @pytest.mark.sample(3)
    @pytest.mark.parametrize("name", sorted(set(golden.tables()) - set(LEFT_OUT)))
    def test_reference_tables_give_the_rows_of_their_scan(self, name, tmp_path):
        found = golden.table(name)
        both = {"allowed-locations": f"{found.written_at}, {tmp_path}"}
        table = Table.from_metadata(found.metadata_location, both, io=found.io)
        if table.current_snapshot() is None or not table.scan().plan_files():
            pytest.skip("a table without rows")
        # What others may have asked for, ORC, is refused as for an append.
        kept = {key: value for key, value in table.properties.items() if value != "orc"}
        metadata = replace(table.metadata, location=tmp_path.as_uri(), properties=kept)
        state = TableState(table=table.identifier, metadata=metadata, metadata_location=table.metadata_location)
        writable = Table(state, io=found.io, catalog=None)
        compaction = plan_compaction(table.scan(), RewriteOptions.of({"rewrite-all": True}, {}))
        files = run(writable, write_compact_plan(Work(writable), compaction))
        columns = ("*", "_row_id", "_last_updated_sequence_number") if table.metadata.format_version > 2 else ("*",)
        check_rows(table, files, columns)


def sort(table: Table, columns: list[str], **options: object) -> list[DataFile]:
    order = sort_order_from_shorthand(columns, table.schema())
    plan = write_compact_plan(Work(table), compaction_of(table, **options), sort_order=order)
    files = run(table, plan)
    assert not [status for status in table.io.list(plan.staging_location) if status.location.endswith(".arrow")]
    return files


class TestSorted:
    """Rows of a group come out in order, in one file or over several."""

    @pytest.fixture(params=["in memory", "by ranges"])
    def table(self, request, tmp_path, monkeypatch):
        if request.param == "by ranges":
            monkeypatch.setattr(compact_sorted, "SMALL_GROUP_BYTES", 0)
            monkeypatch.setattr(compact_sorted, "RANGE_BYTES", 1000)
        return filled_table(tmp_path, 500)

    @pytest.mark.costly
    def test_each_partition_is_sorted(self, table):
        files = sort(table, ["name desc"])
        assert {file.partition for file in files} == {(0,), (1,)}
        for partition in [(0,), (1,)]:
            names = read(table, [file for file in files if file.partition == partition])["name"].to_pylist()
            assert len(names) == 250
            assert names == sorted(names, reverse=True)

    @pytest.mark.costly
    def test_files_claim_the_order_only_if_the_table_knows_it(self, table):
        assert {file.sort_order_id for file in sort(table, ["name desc"])} == {0}
        table.alter([{"set_sort_order": ["name desc"]}])
        assert {file.sort_order_id for file in sort(table, ["name desc"])} == {table.sort_order().order_id}

    @pytest.mark.costly
    def test_several_files_follow_each_other(self, table):
        table.alter([{"drop_partition_field": "day"}])
        size = sum(task.file.file_size_in_bytes for task in table.scan().plan_files())
        files = sort(table, ["id"], **{"target-file-size-bytes": size // 4})
        ids = read(table, files)["id"].to_pylist()
        assert ids == sorted(ids) == list(range(500))

    @pytest.mark.costly
    def test_files_of_other_specs_are_sorted_within_their_new_partitions(self, table):
        table.alter([{"add_partition_field": "bucket(3, id)"}])
        files = sort(table, ["id desc"])
        assert len({file.partition for file in files}) == 6
        for file in files:
            ids = read(table, [file])["id"].to_pylist()
            assert ids == sorted(ids, reverse=True)
        check_rows(table, files)

    @pytest.mark.services
    def test_a_range_that_is_one_key_is_written_in_runs(self, table, monkeypatch):
        monkeypatch.setattr(compact_sorted, "SMALL_GROUP_BYTES", 0)
        monkeypatch.setattr(compact_sorted, "RANGE_BYTES", 200)
        monkeypatch.setattr(sorted_write, "RUN_BYTES", 2000)
        table.alter([{"drop_partition_field": "day"}])
        assert len(sort(table, ["day", "id"])) == 1  # no range is heavy
        files = sort(table, ["day"])
        assert len(files) > 2
        for file in files:
            days = read(table, [file])["day"].to_pylist()
            assert days == sorted(days)
        check_rows(table, files)

    def test_an_output_is_sorted_in_as_many_parts_as_asked_for(self, tmp_path, monkeypatch):
        monkeypatch.setattr(compact_sorted, "SMALL_GROUP_BYTES", 0)
        table = new_table(tmp_path)
        table.alter([{"drop_partition_field": "day"}])
        table.append(rows(range(500)))
        cuts = []
        choose = ordering.choose_boundaries
        monkeypatch.setattr(
            ordering, "choose_boundaries", lambda *given: cuts.append(choose(*given).num_rows) or choose(*given)
        )
        for parts in (1, 4):
            files = sort(table, ["id"], **{"shuffle-partitions-per-file": parts})
            assert read(table, files)["id"].to_pylist() == list(range(500))
            assert len(files) == 1
        assert cuts == [0, 3]

    def test_z_order_counts_as_much_of_the_text_as_asked_for(self, tmp_path):
        table = new_table(tmp_path)
        table.alter([{"drop_partition_field": "day"}])
        names = [f"the same eight and more {number}" for number in (2, 0, 3, 1)]
        table.append(rows(range(4)).set_column(2, "name", pa.array(names)))
        for count, expected in ((8, names), (64, sorted(names))):
            files = rewrite(table, zorder_columns=("name",), **{"var-length-contribution": count})
            assert read(table, files)["name"].to_pylist() == expected

    @pytest.mark.costly
    def test_z_order_keeps_all_rows_and_nothing_of_the_exchange(self, table):
        files = rewrite(table, zorder_columns=("id", "name"))
        check_rows(table, files)
        assert {file.sort_order_id for file in files} == {0}
        assert not [status for status in table.io.list(table.location) if status.location.endswith(".arrow")]


class TestTexts:
    """Texts that lie in dictionaries come through every way of rewriting, those of other files beside them."""

    COUNT = 2000

    @pytest.fixture(params=["in memory", "by ranges", "in runs"])
    def table(self, request, tmp_path, monkeypatch):
        if request.param != "in memory":
            monkeypatch.setattr(compact_sorted, "SMALL_GROUP_BYTES", 0)
            monkeypatch.setattr(compact_sorted, "RANGE_BYTES", 20_000 if request.param == "by ranges" else 200)
            monkeypatch.setattr(sorted_write, "RUN_BYTES", 50_000)
        table = new_table(tmp_path)
        table.alter([{"drop_partition_field": "day"}])
        for start, names in enumerate(
            (["red", "green", None], ["green", "blue"], [f"n{at}" for at in range(2000)], [None])
        ):
            several = (names * self.COUNT)[: self.COUNT]
            table.append(rows(range(start, start + self.COUNT)).set_column(2, "name", pa.array(several, pa.string())))
        footers = [pq.ParquetFile(table.io.filesystem(task.file.file_path)[1]) for task in table.scan().plan_files()]
        kept = [len(dictionary_columns(footer.metadata, footer.schema_arrow)) for footer in footers]
        assert sorted(kept) == [0, 1, 1, 1]  # the file of all the different names has none
        return table

    def check(self, table: Table, files: list[DataFile]) -> None:
        check_rows(table, files)
        live = [task.file for task in table.scan().plan_files()]
        assert sum(file.null_value_counts[3] for file in files) == sum(file.null_value_counts[3] for file in live)
        for file in files:
            names = [name for name in read(table, [file])["name"].to_pylist() if name is not None]
            found = file.lower_bounds.get(3), file.upper_bounds.get(3)
            assert found == ((min(names).encode(), max(names).encode()) if names else (None, None))

    @pytest.mark.costly
    @pytest.mark.sample(2)
    @pytest.mark.parametrize("by", [["name"], ["name desc", "id"], ["id desc"], ["day", "name"]], ids=str)
    def test_sorted(self, table, by):
        files = sort(table, by)
        self.check(table, files)
        for file in files:
            found = read(table, [file]).to_pydict()
            if by == ["id desc"]:
                assert found["id"] == sorted(found["id"], reverse=True)
            elif by == ["name"]:
                assert found["name"] == sorted(found["name"], key=lambda name: (name is not None, name or ""))

    def test_ranges_are_as_large_as_their_texts(self, tmp_path):
        """However little room the indices take: the rows of a range may have to become plain in memory."""
        table = new_table(tmp_path)
        texts = pa.array([f"{number}".ljust(1000, "-") for number in range(4)] * 2500)
        table.append(rows(range(10_000)).set_column(2, "name", texts))
        spill = exchange.Spill(table.io, f"{table.location}/spilled", cut=lambda rows: iter([(0, rows)]))
        for task in table.scan().plan_files():
            for batch in read_file(table.io, task.file, schema=table.schema(), keep_dictionaries=True):
                assert pa.types.is_dictionary(batch.column(2).type)
                spill.write(pa.Table.from_batches([batch]))
        (piece,) = spill.close()
        assert piece.record_count == 10_000
        assert piece.size_bytes > 10_000_000
        assert sum(part.num_rows for part in exchange.read_slices(table.io, [piece])) == 10_000

    @pytest.mark.services
    def test_along_a_z_curve_and_bin_packed(self, table):
        self.check(table, rewrite(table, zorder_columns=("name", "id")))
        files = rewrite(table)
        self.check(table, files)
        size = sum(file.file_size_in_bytes for file in files)
        self.check(table, rewrite(table, **{"target-file-size-bytes": size // 3}))

    @pytest.mark.services
    def test_into_other_partitions(self, table):
        table.alter([{"add_partition_field": "truncate(1, name)"}])
        for files in (rewrite(table), sort(table, ["id"])):
            self.check(table, files)
            assert {file.partition for file in files} == {("r",), ("g",), ("b",), ("n",), (None,)}


class TestCut:
    """A group is cut into runs of about one size; a large file between its row groups."""

    def unit(self, size: int, groups: int = 1, name: str = "a") -> FileUnit:
        facts = {"file_path": name, "file_format": "parquet", "record_count": 1, "file_size_in_bytes": size}
        return FileUnit(file=DataFile(**facts, split_offsets=tuple(range(4, 4 + groups))), sequence_number=1)

    def test_files_are_taken_in_order(self):
        runs = cut_group([self.unit(10, name=str(n)) for n in range(5)], split_size_bytes=20)
        assert [[unit.file.file_path for unit in run] for run in runs] == [["0", "1"], ["2", "3"], ["4"]]

    def test_a_large_file_is_cut_between_row_groups_and_read_once_by_each_task(self):
        runs = cut_group([self.unit(100, groups=10)], split_size_bytes=50)
        assert [[unit.parts for unit in run] for run in runs] == [[(0, 5, 10)], [(5, 10, 10)]]
        assert [len(run) for run in cut_group([self.unit(100)], split_size_bytes=10)] == [1]


class TestChecks:
    """What is damaged or incomplete is never taken for a result."""

    @pytest.fixture
    def plan(self, tmp_path):
        table = new_table(tmp_path)
        table.append(rows(range(4)))
        return write_compact_plan(Work(table), compaction_of(table))

    def refuse(self, plan: JobPlan, work: bytes, message: str) -> None:
        location = plan.task.table.work.location
        IO.delete([location])
        sealed = replace(plan.task.table, work=SealedFile.create(IO, location, work))
        with pytest.raises(FormatError, match=message):
            read_work(IO, sealed)
        with pytest.raises(FormatError, match="work document of a job is not the one that was written"):
            read_work(IO, plan.task.table)

    def test_a_torn_work_document_is_refused(self, plan):
        self.refuse(plan, IO.read(plan.task.table.work.location)[:-9], "work document of a job is damaged")

    @pytest.mark.parametrize(
        ("field", "value"),
        [("parts", [0, 1]), ("parts", [1, 1, 2]), ("parts", [-1, 1, 2]), ("parts", [0, 3, 2]), ("sequence-number", -1)],
    )
    def test_a_forged_unit_of_work_is_refused(self, field, value, plan):
        document = gzip.decompress(IO.read(plan.task.table.work.location)).decode()
        lines = [json.loads(line) for line in document.split("\n")]
        lines[0]["units"][0][field] = value
        forged = gzip.compress("\n".join(map(json.dumps, lines)).encode())
        self.refuse(plan, forged, rf"in 'line 1\.units\[0\]\.{field}'")

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"file-path": "/elsewhere/a.parquet"}, "file /elsewhere/a.parquet is not one of job"),
            ({"spec-id": 7}, "a file is of spec 7, which the plan does not have"),
            ({"spec-id": [0]}, r"a file is of spec \[0\], which the plan does not have"),
            ({"record-count": "many"}, "record-count"),
        ],
    )
    def test_a_forged_file_of_a_result_is_refused(self, changes, message, plan):
        result = run_local(plan, IO)
        forged = GroupOutput(group=0, data_files=({**result.groups[0].data_files[0], **changes},))
        with pytest.raises(FormatError, match=message):
            staged_files(plan, replace(result, groups=(forged,)))

    @pytest.mark.parametrize(("counts", "found"), [((1, 1), 1), ((2,), 0)], ids=["fewer rows", "no report of a task"])
    def test_missing_rows_are_refused(self, counts, found, plan):
        items = read_work(IO, plan.task.table)
        reports = [TaskReport(number=number, record_count=count) for number, count in enumerate(counts)]
        with pytest.raises(IcebergError, match=f"has 2 rows by the table's manifests, but {found} were written"):
            group_outputs(items, [(items[report.number].group, report) for report in reports])


class TestWhatATaskIsSent:
    """Every task of Spark gets the work of all, closed, and opens its own: the others may be very many files."""

    @pytest.mark.services
    def test_it_opens_its_own_work_alone(self, tmp_path):
        table = filled_table(tmp_path)
        plan = write_compact_plan(Work(table), compaction_of(table))
        items = read_work(table.io, plan.task.table)
        specs = [CompactItem(number=item.number, item=item) for item in items]
        sent = Worker(plan=plan.to_json(), storage={}, max_failures=1).with_specs(specs).__self__
        assert len(sent.specs) == 2
        here = replace(sent, specs=(b"of another task", sent.specs[1]))
        (row,) = here.run_numbers(iter([pa.record_batch([pa.array([1])], ["id"])]))
        report = TaskReport.from_json(row.column(0)[0].as_py())
        assert report.error is None
        assert (report.number, report.record_count) == (1, 25)

    @pytest.mark.parametrize("spec_ids", [(0, 0), (0, 1)])
    def test_an_output_of_a_sort_knows_of_two_files_at_most(self, tmp_path, spec_ids):
        table = new_table(tmp_path)
        table.append(rows(range(10)))
        file = table.scan().plan_files()[0].file
        first, last = (FileUnit(file=replace(file, spec_id=spec_id), sequence_number=1) for spec_id in spec_ids)
        units = [*(replace(first) for _ in range(50)), last]
        members = compact_sorted.members_of(units, 0)
        assert members == ((units[0],) if spec_ids == (0, 0) else (units[0], units[-1]))
