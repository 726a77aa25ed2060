"""Which files a compaction rewrites, in which groups, and the number of output files of each group.

Here: the options of Iceberg's `rewrite_data_files` with its names and defaults, the choice of candidates, packing and
the number of outputs. Pure: the input is scan tasks, the output is groups. Not here: scanning (`plan.scan`), reading
and writing (`jobs`), committing (`commit`).

The rules are the same as in Iceberg Java (`SizeBasedFileRewritePlanner`, `BinPackRewriteFilePlanner`): after one of
the two has compacted a table, the other finds nothing to do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self

from airflow_iceberg.errors import InvalidInputError, true_or_false
from airflow_iceberg.format.manifests.entries import DataFile, FileContent
from airflow_iceberg.format.properties.table_properties import TableProperties
from airflow_iceberg.format.values.bytes import canonical_key
from airflow_iceberg.plan.deletes import referenced_file
from airflow_iceberg.plan.scan import FileScanTask

GIB = 1 << 30
MAX_INT = 2**31 - 1
DEFAULT_TARGET_FILE_SIZE = TableProperties.target_file_size_bytes.default
JOB_ORDERS = ("none", "bytes-asc", "bytes-desc", "files-asc", "files-desc")
SORT_OPTIONS = frozenset({"compression-factor", "shuffle-partitions-per-file"})
ZORDER_OPTIONS = frozenset({"var-length-contribution", "max-output-size"})
_MIN_SHARE, _MAX_SHARE = 0.75, 1.8
# Each byte needs memory for every row.
_MOST_COMPRESSION, _MOST_TEXT = 1000, 1024
_POSITIVE = (
    *("target_file_size_bytes", "min_input_files", "max_file_group_size_bytes", "max_file_group_input_files"),
    *("partial_progress_max_commits", "max_concurrent_file_group_rewrites", "shuffle_partitions_per_file"),
    *("var_length_contribution", "max_output_size", "max_files_to_rewrite"),
)
_NOT_NEGATIVE = ("delete_file_threshold", "partial_progress_max_failed_commits")


@dataclass(frozen=True, kw_only=True, slots=True)
class RewriteOptions:
    """The options of a compaction; sizes are bytes on disk.

    Attributes:
        target_file_size_bytes: size of new files; by default the table's `write.target-file-size-bytes`.
        min_file_size_bytes: size below which files are rewritten; by default 0.75 of the target.
        max_file_size_bytes: size above which files are rewritten; by default 1.8 of the target.
        min_input_files: number of files from which a group is rewritten, whatever its size.
        max_file_group_size_bytes: largest size of a group, which is rewritten as a whole.
        max_file_group_input_files: most files of a group.
        max_files_to_rewrite: most files of all groups; None is no limit.
        delete_file_threshold: number of delete files from which a file is rewritten; 0 is every file.
        delete_ratio_threshold: fraction of deleted rows from which a file is rewritten, above 0 and at most 1.
        rewrite_all: whether every file is rewritten, whatever its size.
        partial_progress_enabled: whether finished groups are committed although other groups fail.
        partial_progress_max_commits: most commits with partial progress.
        partial_progress_max_failed_commits: most failed commits of a compaction that succeeds; None is max_commits.
        max_concurrent_file_group_rewrites: number of groups that are rewritten at a time.
        use_starting_sequence_number: whether new files get the sequence number of the snapshot that was read, so that
            equality deletes of other writers still apply to them.
        remove_dangling_deletes: whether delete files that apply to no data file are removed.
        rewrite_job_order: order of the groups: one of JOB_ORDERS.
        output_spec_id: partition spec of new files; None is the table's default spec.
        compression_factor: expected growth of sorted files, which increases the number of output files.
        shuffle_partitions_per_file: least number of ranges that are sorted for each output file.
        var_length_contribution: bytes of text and binary columns that a z-order uses.
        max_output_size: most bytes of a z-order's sort key.
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
        for names, least in ((_POSITIVE, 1), (_NOT_NEGATIVE, 0)):
            for name in names:
                value = getattr(self, name)
                if value is not None and value < least:
                    raise InvalidInputError(f"{_option(name)} is {value}, expected {least} or more")
        if not 0 <= self.min_file_size_bytes < self.target_file_size_bytes < self.max_file_size_bytes:
            raise InvalidInputError(
                f"min-file-size-bytes is {self.min_file_size_bytes}, target-file-size-bytes "
                f"{self.target_file_size_bytes} and max-file-size-bytes {self.max_file_size_bytes}; expected "
                f"0 <= min < target < max"
            )
        if not 0 < self.compression_factor <= _MOST_COMPRESSION:
            raise InvalidInputError(
                f"compression-factor is {self.compression_factor}, "
                f"expected a number above 0, {_MOST_COMPRESSION} at most"
            )
        if self.var_length_contribution > _MOST_TEXT:
            raise InvalidInputError(
                f"var-length-contribution is {self.var_length_contribution}, expected {_MOST_TEXT} bytes at most"
            )
        if not 0 < self.delete_ratio_threshold <= 1:
            raise InvalidInputError(
                f"delete-ratio-threshold is {self.delete_ratio_threshold}, expected above 0 and at most 1"
            )
        if self.rewrite_job_order not in JOB_ORDERS:
            raise InvalidInputError(
                f"rewrite-job-order is {self.rewrite_job_order!r}, expected one of {', '.join(JOB_ORDERS)}"
            )

    @classmethod
    def of(cls, options: Mapping[str, Any], properties: Mapping[str, str]) -> Self:
        """Read the options of Iceberg's procedure.

        Args:
            options: options by Iceberg's names ("min-input-files"), with values as text, numbers or booleans.
            properties: the table's properties, whose target size is the default.
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
        given = {name: value for name, value in given.items() if value is not None}  # None is an omitted option
        if "target_file_size_bytes" not in given:
            given["target_file_size_bytes"] = TableProperties.of(properties).target_file_size_bytes
        target = given["target_file_size_bytes"]
        given.setdefault("min_file_size_bytes", int(target * _MIN_SHARE))
        given.setdefault("max_file_size_bytes", int(target * _MAX_SHARE))
        return cls(**given)

    @property
    def write_max_file_size_bytes(self) -> int:
        """The largest size of an output file: a little above the target, to avoid a tiny last file."""
        return int(self.target_file_size_bytes + (self.max_file_size_bytes - self.target_file_size_bytes) * 0.5)


@dataclass(frozen=True, kw_only=True, slots=True)
class FileGroup:
    """Files that are rewritten together, in one commit or not at all.

    Attributes:
        number: position in the order of the groups, from 1.
        spec_id, partition: spec and partition of the new files; an empty partition for files of another spec.
        tasks: the files, with the deletes that apply to them.
        output_files: expected number of output files.
        input_split_size_bytes: bytes of input for each output file.
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
    """Return the groups of files to rewrite; none if no file needs it.

    Args:
        tasks: files of one snapshot that a filter selects; whole files are rewritten. Iterated once more if a file is
            chosen for its deletes: a commit removes a file from all places where the table lists it.
        output_spec_id: the spec of the new files.
    """
    groups: list[FileGroup] = []
    # A generator: for a large table without candidates, nothing is kept in memory.
    for partition, found in _by_partition(_chosen(tasks, options), output_spec_id):
        for packed in _pack(found, options):
            if options.rewrite_all or _is_worth_it(packed, options):
                groups.append(_group(output_spec_id, partition, packed, options))
    ordered = _limited(_ordered(groups, options.rewrite_job_order), options)
    return tuple(replace(group, number=number) for number, group in enumerate(ordered, 1))


def output_file_count(size_bytes: int, options: RewriteOptions) -> int:
    """Return the number of output files for a group of this size: close to the target, without a tiny last file."""
    target = options.target_file_size_bytes
    if size_bytes < target:
        return 1
    rounded_up, rounded_down = -(-size_bytes // target), size_bytes // target
    if size_bytes % target > options.min_file_size_bytes:
        return rounded_up
    average = size_bytes // rounded_down
    return rounded_down if average < min(1.1 * target, options.write_max_file_size_bytes) else rounded_up


def deletes_of(task: FileScanTask) -> int:
    """Return the number of rows that deletes of this file alone remove, at most all rows of the file."""
    own = sum(delete.record_count for delete in task.delete_files if _is_file_scoped(delete))
    return min(own, task.file.record_count)


def _by_partition(
    tasks: Iterable[FileScanTask], output_spec_id: int
) -> Iterable[tuple[tuple[Any, ...], list[FileScanTask]]]:
    """Group by partition; files of another spec are one group, since their rows may belong to any partition."""
    found: dict[Any, tuple[tuple[Any, ...], list[FileScanTask]]] = {}
    for task in tasks:
        partition = task.file.partition if task.file.spec_id == output_spec_id else ()
        found.setdefault(canonical_key(partition), (partition, []))[1].append(task)
    return found.values()


def _chosen(tasks: Iterable[FileScanTask], options: RewriteOptions) -> Iterator[FileScanTask]:
    """Yield the files that are candidates, in all places where the table lists them."""
    if options.rewrite_all:
        yield from tasks
        return
    by_deletes: set[str] = set()
    for task in tasks:
        if _is_of_wrong_size(task, options):
            yield task
        elif _has_too_many_deletes(task, options):
            by_deletes.add(task.file.file_path)
            yield task
    # The same file may have fewer deletes in another place.
    for task in tasks if by_deletes else ():
        if task.file.file_path in by_deletes and not (
            _is_of_wrong_size(task, options) or _has_too_many_deletes(task, options)
        ):
            yield task


def _is_of_wrong_size(task: FileScanTask, options: RewriteOptions) -> bool:
    size = task.file.file_size_in_bytes
    return size < options.min_file_size_bytes or size > options.max_file_size_bytes


def _has_too_many_deletes(task: FileScanTask, options: RewriteOptions) -> bool:
    if len(task.delete_files) >= options.delete_file_threshold:
        return True
    rows = task.file.record_count
    return bool(task.delete_files and rows) and deletes_of(task) / rows >= options.delete_ratio_threshold


def _is_file_scoped(delete: DataFile) -> bool:
    return delete.content is FileContent.POSITION_DELETES and referenced_file(delete) is not None


def _pack(tasks: Sequence[FileScanTask], options: RewriteOptions) -> Iterator[tuple[FileScanTask, ...]]:
    """Fill the groups one after another, in the order of the scan; the places of a file are in one group."""
    by_path: dict[str, list[FileScanTask]] = {}
    for task in tasks:
        by_path.setdefault(task.file.file_path, []).append(task)
    group: list[FileScanTask] = []
    size = 0
    for places in by_path.values():
        weight = sum(task.file.file_size_in_bytes for task in places)
        is_full = size + weight > options.max_file_group_size_bytes or len(group) >= options.max_file_group_input_files
        if group and is_full:
            yield tuple(group)
            group, size = [], 0
        group += places
        size += weight
    if group:
        yield tuple(group)


def _is_worth_it(group: Sequence[FileScanTask], options: RewriteOptions) -> bool:
    size = sum(task.file.file_size_in_bytes for task in group)
    has_enough = len(group) > 1 and (len(group) >= options.min_input_files or size > options.target_file_size_bytes)
    # A single file is rewritten if it is too large or has too many deletes, not if it is too small.
    is_too_large = size > options.max_file_size_bytes
    return has_enough or is_too_large or any(_has_too_many_deletes(task, options) for task in group)


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
    by_bytes, descending = order.startswith("bytes"), order.endswith("desc")
    return sorted(groups, key=lambda group: group.size_bytes if by_bytes else len(group.tasks), reverse=descending)


def _limited(groups: Iterable[FileGroup], options: RewriteOptions) -> list[FileGroup]:
    """Return the groups up to the limit of files; the group that would exceed it is cut."""
    left = options.max_files_to_rewrite
    if left is None:
        return list(groups)
    kept: list[FileGroup] = []
    for group in groups:
        if left <= 0:
            break
        tasks = group.tasks[:left]
        # Not between two places of one file.
        while tasks and len(tasks) < len(group.tasks) and tasks[-1].file.file_path == _path_after(tasks, group):
            tasks = tasks[:-1]
        if tasks:
            is_whole = len(tasks) == len(group.tasks)
            kept.append(group if is_whole else _group(group.spec_id, group.partition, tasks, options))
        left -= len(group.tasks)
    return kept


def _path_after(tasks: Sequence[FileScanTask], group: FileGroup) -> str:
    return group.tasks[len(tasks)].file.file_path


def _option(name: str) -> str:
    """Return Iceberg's name of the option of an attribute."""
    return name.replace("_", "-").replace("partial-progress-", "partial-progress.", 1)


def _parse(name: str, kind: str, value: Any) -> Any:
    """Read the value of an option; Iceberg's procedure gets texts, and templates give texts as well."""
    text = str(value).strip()
    if value is None or (text.lower() in ("", "none", "null") and "None" in kind):
        return None
    if kind == "bool":
        return true_or_false(f"option {name}", value)
    if kind == "str":
        return text.lower()
    try:
        return float(text) if kind == "float" else int(text)
    except ValueError as error:
        expected = "a number" if kind == "float" else "a whole number"
        raise InvalidInputError(f"option {name} is {value!r}, expected {expected}") from error
