"""Which files a compaction rewrites: the rules of Iceberg's `rewrite_data_files`."""

import re
from dataclasses import replace

import pytest

from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.format.manifests.entries import DataFile, FileContent
from airflow_iceberg.plan.compact import FileGroup, RewriteOptions, output_file_count, plan_groups
from airflow_iceberg.plan.scan import FileScanTask

MB = 1 << 20
TARGET = 100 * MB


def options(**given: object) -> RewriteOptions:
    named = {name.replace("_", "-"): value for name, value in given.items()}
    return RewriteOptions.of({"target-file-size-bytes": TARGET, **named}, {})


def task(megabytes: float, number: int = 0, *, partition: tuple = (), spec_id: int = 0, deletes: tuple = (), rows=100):
    file = DataFile(
        file_path=f"file:///t/{number}.parquet",
        file_format="parquet",
        partition=partition,
        spec_id=spec_id,
        record_count=rows,
        file_size_in_bytes=int(megabytes * MB),
    )
    return FileScanTask(file=file, sequence_number=1, delete_files=deletes)


def vector(rows: int, *, referenced: str | None = "file:///t/0.parquet") -> DataFile:
    return DataFile(
        content=FileContent.POSITION_DELETES,
        file_path="file:///t/d.parquet",
        file_format="parquet",
        record_count=rows,
        file_size_in_bytes=10,
        referenced_data_file=referenced,
    )


def planned(tasks: list[FileScanTask], **given: object) -> list[list[int]]:
    """The sizes in megabytes of the files of each group."""
    return [[t.file.file_size_in_bytes // MB for t in group.tasks] for group in groups(tasks, **given)]


def groups(tasks: list[FileScanTask], **given: object) -> tuple[FileGroup, ...]:
    """The groups of these files, each of which has a path of its own."""
    files = [replace(task.file, file_path=f"file:///t/{number}.parquet") for number, task in enumerate(tasks)]
    named = [replace(task, file=file) for task, file in zip(tasks, files, strict=True)]
    return plan_groups(named, options(**given), output_spec_id=0)


class TestCandidates:
    """A file is rewritten when its size is outside of [min, max], or when too much of it is deleted."""

    def test_files_outside_of_the_limits_are_rewritten(self):
        assert planned([task(75), task(100), task(180), task(100), task(90)]) == []
        assert planned([task(10), task(100), task(20), task(30), task(40), task(50)]) == [[10, 20, 30, 40, 50]]
        assert planned([task(181)]) == [[181]]
        assert planned([task(180)]) == []

    def test_a_share_of_deleted_rows_of_this_file_alone_triggers(self):
        assert planned([task(100, deletes=(vector(30),))]) == [[100]]
        assert planned([task(100, deletes=(vector(29),))]) == []
        assert planned([task(100, deletes=(vector(100, referenced=None),))]) == []
        assert planned([task(100, rows=0, deletes=(vector(5),))]) == []

    def test_a_number_of_delete_files_triggers(self):
        both = (vector(1), vector(1, referenced=None))
        assert planned([task(100, deletes=both)], delete_file_threshold=2) == [[100]]
        assert planned([task(100, deletes=both)], delete_file_threshold=3) == []
        assert planned([task(100)], delete_file_threshold=0) == [[100]]

    def test_rewrite_all_takes_every_file(self):
        assert planned([task(100), task(100)], rewrite_all=True) == [[100, 100]]
        assert planned([task(100)], rewrite_all="true") == [[100]]


class TestGroups:
    """Files of one partition go together, in the order of the scan, up to the size of a group."""

    def test_few_files_are_left_unless_they_make_more_than_the_target(self):
        assert planned([task(1), task(1), task(1), task(1)]) == []
        assert planned([task(1), task(1)], min_input_files=2) == [[1, 1]]
        assert planned([task(1)], min_input_files=1) == []
        assert planned([task(60), task(60)]) == [[60, 60]]
        assert planned([task(50), task(50)]) == []

    def test_partitions_are_apart_and_nan_is_one(self):
        one, other = ("a",), ("b",)
        tasks = [task(60, partition=one), task(60, partition=other), task(60, partition=one), task(61, partition=other)]
        assert planned(tasks) == [[60, 60], [60, 61]]
        nan = [task(60, partition=(float("nan"),)) for _ in range(2)]
        zeros = [task(60, partition=(0.0,)), task(60, partition=(-0.0,))]
        assert planned([*nan, *zeros]) == [[60, 60]]

    def test_files_of_other_specs_make_a_group_without_a_partition(self):
        tasks = [task(60, partition=("a",), spec_id=1), task(60, partition=("b",), spec_id=1)]
        (group,) = groups(tasks)
        assert (group.partition, group.spec_id, len(group.tasks)) == ((), 0, 2)

    def test_a_group_ends_at_its_size_and_its_number_of_files(self):
        assert planned([task(60)] * 4, max_file_group_size_bytes=130 * MB) == [[60, 60], [60, 60]]
        assert planned([task(60)] * 5, max_file_group_input_files=2) == [[60, 60], [60, 60]]

    @pytest.mark.parametrize(("order", "expected"), [
        ("none", [[60, 60], [20] * 6, [70, 70]]), ("bytes-asc", [[60, 60], [20] * 6, [70, 70]]),
        ("bytes-desc", [[70, 70], [20] * 6, [60, 60]]), ("files-asc", [[60, 60], [70, 70], [20] * 6]),
        ("files-desc", [[20] * 6, [60, 60], [70, 70]]), ("FILES-DESC", [[20] * 6, [60, 60], [70, 70]]),
    ])  # fmt: skip
    def test_groups_are_numbered_in_the_order_asked_for(self, order, expected):
        first, many, large = [task(60, partition=("a",))] * 2, [task(20.5, partition=("b",))] * 6, [task(70)] * 2
        assert planned([*first, *many, *large], rewrite_job_order=order) == expected
        assert [group.number for group in groups([*first, *many, *large], rewrite_job_order=order)] == [1, 2, 3]

    def test_a_limit_of_files_leaves_out_by_order_and_cuts_the_last_group(self):
        tasks = [*[task(60, partition=("a",))] * 2, *[task(20, partition=("b",))] * 6]
        assert planned(tasks, rewrite_job_order="files-desc", max_files_to_rewrite=6) == [[20] * 6]
        assert planned(tasks, rewrite_job_order="files-asc", max_files_to_rewrite=2) == [[60, 60]]
        tasks = [task(60, partition=(name,)) for name in "aabb"]
        assert planned(tasks, max_files_to_rewrite=3) == [[60, 60], [60]]


class TestFilesInSeveralPlaces:
    """A commit removes a path from all places where the table lists it: so these are rewritten together, or not."""

    def places(self, tasks: list[FileScanTask], **given: object) -> list[list[str]]:
        found = plan_groups(tasks, options(**given), output_spec_id=0)
        return [[t.file.file_path.rsplit("/")[-1][0] for t in group.tasks] for group in found]

    def test_no_group_ends_between_them(self):
        tasks = [task(60, 0), task(60, 1), task(60, 0), task(60, 1)]
        assert self.places(tasks, max_file_group_size_bytes=130 * MB) == [["0", "0"], ["1", "1"]]
        assert self.places(tasks, max_file_group_input_files=1) == [["0", "0"], ["1", "1"]]

    def test_no_limit_of_files_cuts_them_apart(self):
        tasks = [task(60, 0), task(60, 1), task(60, 1)]
        assert self.places(tasks, max_files_to_rewrite=2) == [["0"]]
        assert self.places(tasks[1:], max_files_to_rewrite=1) == []

    def test_a_place_without_deletes_goes_with_the_one_that_has_them(self):
        tasks = [task(100, 0, deletes=(vector(30),)), task(100, 1), task(100, 0)]
        assert self.places(tasks) == [["0", "0"]]


class TestOutputs:
    """A group becomes so many files that they come near the target and no tiny one is left over."""

    @pytest.mark.parametrize(
        ("megabytes", "expected"),
        [(1, 1), (99, 1), (100, 1), (109, 1), (111, 2), (176, 2), (209, 2), (218, 2), (221, 3), (275, 3), (276, 3)],
    )
    def test_the_number_of_files(self, megabytes, expected):
        assert output_file_count(megabytes * MB, options()) == expected

    def test_a_sort_may_be_told_that_files_come_out_larger(self):
        (group,) = groups([task(60, number) for number in range(5)])
        (larger,) = groups([task(60, number) for number in range(5)], **{"compression-factor": "2.0"})
        assert (group.output_files, larger.output_files) == (3, 6)

    def test_an_output_may_grow_half_way_to_the_largest_size(self):
        assert options().write_max_file_size_bytes == 140 * MB


class TestOptions:
    """Options have Iceberg's names and defaults; what cannot be is refused by name."""

    def test_the_target_is_that_of_the_table(self):
        read = RewriteOptions.of({}, {"write.target-file-size-bytes": "1000"})
        assert (read.target_file_size_bytes, read.min_file_size_bytes, read.max_file_size_bytes) == (1000, 750, 1800)

    def test_the_defaults_are_those_of_iceberg(self):
        read = RewriteOptions.of({}, {})
        assert (read.target_file_size_bytes, read.min_input_files) == (512 * MB, 5)
        assert (read.min_file_size_bytes, read.max_file_size_bytes) == (384 * MB, int(512 * MB * 1.8))
        assert read.rewrite_job_order == "none"
        assert (read.partial_progress_max_commits, read.partial_progress_max_failed_commits) == (10, None)
        assert (read.rewrite_all, read.remove_dangling_deletes) == (False, False)
        assert read.max_file_group_size_bytes == 100 * 1024 * MB
        assert (read.delete_ratio_threshold, read.delete_file_threshold) == (0.3, 2**31 - 1)
        assert read.use_starting_sequence_number
        assert not read.partial_progress_enabled

    def test_each_goes_over_its_default(self):
        limits = {"min-file-size-bytes": "10", "max-file-size-bytes": 2000, "max-file-group-size-bytes": "5000"}
        commits = {"partial-progress.max-commits": "3", "partial-progress.max-failed-commits": 1}
        read = RewriteOptions.of({"target-file-size-bytes": "1000", **limits, **commits, "output-spec-id": "2"}, {})
        assert (read.min_file_size_bytes, read.max_file_size_bytes, read.max_file_group_size_bytes) == (10, 2000, 5000)
        assert (read.partial_progress_max_commits, read.partial_progress_max_failed_commits) == (3, 1)
        assert read.output_spec_id == 2

    def test_none_leaves_an_option_out(self):
        given = {"target-file-size-bytes": None, "rewrite-all": None, "max-files-to-rewrite": None}
        assert RewriteOptions.of(given, {}) == RewriteOptions.of({}, {})

    @pytest.mark.parametrize(("given", "message"), [
        ({"target-file-size-bytes": 0}, "target-file-size-bytes is 0, expected 1 or more"),
        ({"min-file-size-bytes": 600 * MB}, "0 <= min < target < max"),
        ({"min-input-files": 0}, "min-input-files is 0, expected 1 or more"),
        ({"min-input-files": "many"}, "option min-input-files is 'many', expected a whole number"),
        ({"partial-progress.enabled": "yes"}, "option partial-progress.enabled is 'yes', expected true or false"),
        ({"delete-ratio-threshold": 1.5}, "delete-ratio-threshold is 1.5, expected above 0 and at most 1"),
        ({"compression-factor": "0"}, "compression-factor is 0.0, expected a number above 0"),
        ({"compression-factor": "nan"}, "compression-factor is nan, expected a number above 0"),
        ({"compression-factor": "1e308"}, "compression-factor is 1e+308, expected a number above 0, 1000 at most"),
        ({"var-length-contribution": 2000}, "var-length-contribution is 2000, expected 1024 bytes at most"),
        ({"shuffle-partitions-per-file": 0}, "shuffle-partitions-per-file is 0, expected 1 or more"),
        ({"var-length-contribution": 0}, "var-length-contribution is 0, expected 1 or more"),
        ({"max-output-size": 0}, "max-output-size is 0, expected 1 or more"),
        ({"delete-file-threshold": -1}, "delete-file-threshold is -1, expected 0 or more"),
        ({"rewrite-job-order": "up"}, "rewrite-job-order is 'up', expected one of none, bytes-asc"),
        (
            {"partial-progress.max-failed-commits": -1},
            "partial-progress.max-failed-commits is -1, expected 0 or more",
        ),
        ("rewrite-all", "options are 'rewrite-all', expected names and values"),
        ({"target_file_size": 1}, "unknown option 'target_file_size'; one of compression-factor"),
    ])  # fmt: skip
    def test_what_cannot_be_is_refused(self, given, message):
        with pytest.raises(InvalidInputError, match=re.escape(message)):
            RewriteOptions.of(given, {})
