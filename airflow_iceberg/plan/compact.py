"""Which files a compaction rewrites, in which groups, and how many files each group becomes.

Here: the options of Iceberg's `rewrite_data_files` with its names and defaults, the choice of candidates, packing and
the number of outputs. Pure: files come in as scan tasks, groups go out. Not here: scanning (`plan.scan`), reading and
writing (`jobs`), committing (`commit`).

The rules are those of Iceberg Java (`SizeBasedFileRewritePlanner`, `BinPackRewriteFilePlanner`): a table that one of
the two has compacted gives the other nothing to do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self

from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.format.manifests.entries import DataFile, FileContent
from airflow_iceberg.format.properties.table_properties import TableProperties
from airflow_iceberg.format.values.bytes import canonical_key
from airflow_iceberg.plan.scan import FileScanTask

GIB = 1 << 30
MAX_INT = 2**31 - 1
DEFAULT_TARGET_FILE_SIZE = TableProperties.target_file_size_bytes.default
JOB_ORDERS = ("none", "bytes-asc", "bytes-desc", "files-asc", "files-desc")
SORT_OPTIONS = frozenset({"compression-factor", "shuffle-partitions-per-file"})
ZORDER_OPTIONS = frozenset({"var-length-contribution", "max-output-size"})
_MIN_SHARE, _MAX_SHARE = 0.75, 1.8
# Each byte that counts takes memory for every row.
_MOST_COMPRESSION, _MOST_TEXT = 1000, 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class RewriteOptions:
    """The options of a compaction; sizes are bytes on disk.

    Attributes:
        target_file_size_bytes: size of the files that are written; the table's `write.target-file-size-bytes`.
        min_file_size_bytes: smaller files are rewritten; 0.75 of the target.
        max_file_size_bytes: larger files are rewritten; 1.8 of the target.
        min_input_files: a group of that many files is rewritten whatever its size.
        max_file_group_size_bytes: a group is rewritten as a whole, and is at most that large.
        max_file_group_input_files: most files of a group.
        max_files_to_rewrite: most files in all; None is no limit.
        delete_file_threshold: a file with that many delete files is rewritten; 0 is every file.
        delete_ratio_threshold: so is one of which at least that share of rows is deleted, above 0 and at most 1.
        rewrite_all: rewrite every file, whatever its size.
        partial_progress_enabled: commit groups as they are done, and leave out those that fail.
        partial_progress_max_commits: most commits then.
        partial_progress_max_failed_commits: the compaction fails when more commits than these do; None is max_commits.
        max_concurrent_file_group_rewrites: groups that are worked on at a time.
        use_starting_sequence_number: give the new files the sequence number of the snapshot that was read, so that
            equality deletes that are written meanwhile still apply to them.
        remove_dangling_deletes: remove delete files that apply to no file any more.
        rewrite_job_order: which groups come first: one of JOB_ORDERS.
        output_spec_id: partition spec of the files that are written; the table's default spec if None.
        compression_factor: sorted files come out that much larger than they went in, as far as their number goes.
        shuffle_partitions_per_file: ranges that are sorted one after the other for each output, at least.
        var_length_contribution: bytes of text and binary columns that count for a z-order.
        max_output_size: most bytes that a z-order compares rows by.
    """

    target_file_size_bytes: int = DEFAULT_TARGET_FILE_SIZE
    min_file_size_bytes: int = int(DEFAULT_TARGET_FILE_SIZE * _MIN_SHARE)
    max_file_size_bytes: int = int(DEFAULT_TARGET_FILE_SIZE * _MAX_SHARE)
    min_input_files: int = 5
    max_file_group_size_bytes: int = 100 * GIB
    max_file_group_input_files: int = MAX_INT
    max_files_to_rewrite: int | None = None
    delete_file_threshold: int = MAX_INT
    delete_ratio_threshold: float = 0.3
    rewrite_all: bool = False
    partial_progress_enabled: bool = False
    partial_progress_max_commits: int = 10
    partial_progress_max_failed_commits: int | None = None
    max_concurrent_file_group_rewrites: int = 5
    use_starting_sequence_number: bool = True
    remove_dangling_deletes: bool = False
    rewrite_job_order: str = "none"
    output_spec_id: int | None = None
    compression_factor: float = 1.0
    shuffle_partitions_per_file: int = 1
    var_length_contribution: int = 8
    max_output_size: int = MAX_INT

    def __post_init__(self) -> None:
        self._check_positive("target_file_size_bytes")
        if not 0 <= self.min_file_size_bytes < self.target_file_size_bytes < self.max_file_size_bytes:
            raise InvalidInputError(
                f"min-file-size-bytes is {self.min_file_size_bytes}, target-file-size-bytes "
                f"{self.target_file_size_bytes} and max-file-size-bytes {self.max_file_size_bytes}; expected "
                f"0 <= min < target < max"
            )
        for name in ("min_input_files", "max_file_group_size_bytes", "max_file_group_input_files"):
            self._check_positive(name)
        for name in ("partial_progress_max_commits", "max_concurrent_file_group_rewrites"):
            self._check_positive(name)
        for name in ("shuffle_partitions_per_file", "var_length_contribution", "max_output_size"):
            self._check_positive(name)
        if not 0 < self.compression_factor <= _MOST_COMPRESSION:
            raise InvalidInputError(
                f"compression-factor is {self.compression_factor}, "
                f"expected a number above 0, {_MOST_COMPRESSION} at most"
            )
        if self.var_length_contribution > _MOST_TEXT:
            raise InvalidInputError(
                f"var-length-contribution is {self.var_length_contribution}, expected {_MOST_TEXT} bytes at most"
            )
        if self.max_files_to_rewrite is not None:
            self._check_positive("max_files_to_rewrite")
        for name in ("delete_file_threshold", "partial_progress_max_failed_commits"):
            if (getattr(self, name) or 0) < 0:
                raise InvalidInputError(f"{_option(name)} is {getattr(self, name)}, expected 0 or more")
        if not 0 < self.delete_ratio_threshold <= 1:
            raise InvalidInputError(
                f"delete-ratio-threshold is {self.delete_ratio_threshold}, expected above 0 and at most 1"
            )
        if self.rewrite_job_order not in JOB_ORDERS:
            raise InvalidInputError(
                f"rewrite-job-order is {self.rewrite_job_order!r}, expected one of {', '.join(JOB_ORDERS)}"
            )

    def _check_positive(self, name: str) -> None:
        if getattr(self, name) < 1:
            raise InvalidInputError(f"{_option(name)} is {getattr(self, name)}, expected 1 or more")

    @classmethod
    def of(cls, options: Mapping[str, Any], properties: Mapping[str, str]) -> Self:
        """Read options as they are given to Iceberg's procedure, over a table's properties.

        Args:
            options: by Iceberg's names ("min-input-files"), values as text, numbers or booleans.
            properties: of the table; the target size is taken from there when no option says otherwise.
        Raises:
            InvalidInputError: an unknown option, a value that is not of its kind, or sizes that contradict each other.
        """
        if not isinstance(options, Mapping):
            raise InvalidInputError(
                f"options are {options!r}, expected names and values, as in {{'rewrite-all': True}}"
            )
        known = {_option(field.name): field for field in fields(cls)}
        unknown = sorted(set(options) - set(known))
        if unknown:
            raise InvalidInputError(f"unknown option {unknown[0]!r}; one of {', '.join(sorted(known))}")
        given = {known[name].name: _parse(name, str(known[name].type), value) for name, value in options.items()}
        # None is an option that is left out.
        given = {name: value for name, value in given.items() if value is not None}
        if "target_file_size_bytes" not in given:
            given["target_file_size_bytes"] = TableProperties.of(properties).target_file_size_bytes
        target = given["target_file_size_bytes"]
        given.setdefault("min_file_size_bytes", int(target * _MIN_SHARE))
        given.setdefault("max_file_size_bytes", int(target * _MAX_SHARE))
        return cls(**given)

    @property
    def write_max_file_size_bytes(self) -> int:
        """The size up to which an output may grow: a little above the target, so that no tiny rest is left."""
        return int(self.target_file_size_bytes + (self.max_file_size_bytes - self.target_file_size_bytes) * 0.5)


@dataclass(frozen=True, kw_only=True, slots=True)
class FileGroup:
    """Files that are rewritten together, in one commit or not at all.

    Attributes:
        number: from 1, in the order in which groups are worked on.
        spec_id, partition: where its files lie; an empty partition where they are of another spec than is written.
        tasks: the files, with the deletes that apply to them.
        output_files: how many files are expected to come out.
        input_split_size_bytes: how much of the input makes one of them.
    """

    number: int
    spec_id: int
    partition: tuple[Any, ...]
    tasks: tuple[FileScanTask, ...]
    output_files: int
    input_split_size_bytes: int

    @property
    def size_bytes(self) -> int:
        """Size of its files on disk."""
        return sum(task.file.file_size_in_bytes for task in self.tasks)


def plan_groups(
    tasks: Iterable[FileScanTask], options: RewriteOptions, *, output_spec_id: int
) -> tuple[FileGroup, ...]:
    """Return what is to be rewritten; nothing when every file is as it should be.

    Args:
        tasks: of one snapshot, by a filter; whole files are rewritten, whatever the filter leaves of them.
        output_spec_id: the spec of the files that are written.
    """
    groups: list[FileGroup] = []
    # Of a large table that is as it should be nothing is kept.
    chosen = tasks if options.rewrite_all else (task for task in tasks if _is_candidate(task, options))
    for (spec_id, partition), found in _by_partition(chosen, output_spec_id).items():
        for packed in _pack(found, options):
            if options.rewrite_all or _is_worth_it(packed, options):
                groups.append(_group(spec_id, partition, packed, options))
    ordered = _limited(_ordered(groups, options.rewrite_job_order), options)
    return tuple(replace(group, number=number) for number, group in enumerate(ordered, 1))


def output_file_count(size_bytes: int, options: RewriteOptions) -> int:
    """Return how many files a group of this size becomes: as near to the target as they get, and no tiny rest."""
    target = options.target_file_size_bytes
    if size_bytes < target:
        return 1
    rounded_up, rounded_down = -(-size_bytes // target), size_bytes // target
    if size_bytes % target > options.min_file_size_bytes:
        return rounded_up
    average = size_bytes // rounded_down
    return rounded_down if average < min(1.1 * target, options.write_max_file_size_bytes) else rounded_up


def deletes_of(task: FileScanTask) -> int:
    """Return how many rows of a file are known to be deleted: what is written for this file alone, at most all."""
    own = sum(delete.record_count for delete in task.delete_files if _is_file_scoped(delete))
    return min(own, task.file.record_count)


def _by_partition(
    tasks: Iterable[FileScanTask], output_spec_id: int
) -> dict[tuple[int, tuple[Any, ...]], list[FileScanTask]]:
    """Group by partition; rows of files of another spec go to whatever partition they belong to now."""
    partitions: dict[Any, tuple[int, tuple[Any, ...]]] = {}
    found: dict[Any, list[FileScanTask]] = {}
    for task in tasks:
        file = task.file
        partition = file.partition if file.spec_id == output_spec_id else ()
        key = tuple(canonical_key(value) for value in partition)
        partitions.setdefault(key, (output_spec_id, partition))
        found.setdefault(key, []).append(task)
    return {partitions[key]: members for key, members in found.items()}


def _is_candidate(task: FileScanTask, options: RewriteOptions) -> bool:
    size = task.file.file_size_in_bytes
    is_of_wrong_size = size < options.min_file_size_bytes or size > options.max_file_size_bytes
    return is_of_wrong_size or _has_too_many_deletes(task, options)


def _has_too_many_deletes(task: FileScanTask, options: RewriteOptions) -> bool:
    if len(task.delete_files) >= options.delete_file_threshold:
        return True
    rows = task.file.record_count
    return bool(task.delete_files and rows) and deletes_of(task) / rows >= options.delete_ratio_threshold


def _is_file_scoped(delete: DataFile) -> bool:
    if delete.content is not FileContent.POSITION_DELETES:
        return False
    if delete.referenced_data_file is not None:
        return True
    lower, upper = (bounds.get(2147483546) if bounds else None for bounds in (delete.lower_bounds, delete.upper_bounds))
    return lower is not None and lower == upper


def _pack(tasks: Sequence[FileScanTask], options: RewriteOptions) -> Iterator[tuple[FileScanTask, ...]]:
    """Fill one group after the other, in the order of the scan."""
    group: list[FileScanTask] = []
    size = 0
    for task in tasks:
        weight = task.file.file_size_in_bytes
        is_full = size + weight > options.max_file_group_size_bytes or len(group) >= options.max_file_group_input_files
        if group and is_full:
            yield tuple(group)
            group, size = [], 0
        group.append(task)
        size += weight
    if group:
        yield tuple(group)


def _is_worth_it(group: Sequence[FileScanTask], options: RewriteOptions) -> bool:
    size = sum(task.file.file_size_in_bytes for task in group)
    has_enough = len(group) > 1 and (len(group) >= options.min_input_files or size > options.target_file_size_bytes)
    # One file that is too large is cut; one that is too small stays as it is.
    return (
        has_enough or size > options.max_file_size_bytes or any(_has_too_many_deletes(task, options) for task in group)
    )


def _group(
    spec_id: int, partition: tuple[Any, ...], tasks: tuple[FileScanTask, ...], options: RewriteOptions
) -> FileGroup:
    size = sum(task.file.file_size_in_bytes for task in tasks)
    count = output_file_count(int(size * options.compression_factor), options)
    return FileGroup(
        number=0,
        spec_id=spec_id,
        partition=partition,
        tasks=tasks,
        output_files=count,
        input_split_size_bytes=max(1, -(-size // count)),
    )


def _ordered(groups: Sequence[FileGroup], order: str) -> list[FileGroup]:
    if order == "none":
        return list(groups)
    by_bytes = order.startswith("bytes")
    return sorted(
        groups,
        key=lambda group: group.size_bytes if by_bytes else len(group.tasks),
        reverse=order.endswith("desc"),
    )


def _limited(groups: Iterable[FileGroup], options: RewriteOptions) -> list[FileGroup]:
    """Take groups while the limit holds; the one that would pass it is cut."""
    left = options.max_files_to_rewrite
    if left is None:
        return list(groups)
    kept: list[FileGroup] = []
    for group in groups:
        if left <= 0:
            break
        kept.append(
            group if len(group.tasks) <= left else _group(group.spec_id, group.partition, group.tasks[:left], options)
        )
        left -= len(group.tasks)
    return kept


def _option(name: str) -> str:
    """Return an attribute's name as Iceberg writes the option."""
    dashed = name.replace("_", "-")
    return dashed.replace("partial-progress-", "partial-progress.", 1)


def _parse(name: str, kind: str, value: Any) -> Any:
    """Read a value of an option; text is what the procedure gets, templates give text as well."""
    text = str(value).strip()
    if value is None or (text.lower() in ("", "none", "null") and "None" in kind):
        return None
    if kind == "bool":
        if text.lower() not in ("true", "false"):
            raise InvalidInputError(f"option {name} is {value!r}, expected true or false")
        return text.lower() == "true"
    if kind == "str":
        return text.lower()
    try:
        return float(text) if kind == "float" else int(text)
    except ValueError as error:
        expected = "a number" if kind == "float" else "a whole number"
        raise InvalidInputError(f"option {name} is {value!r}, expected {expected}") from error
