"""Deletes as only other writers make them: positions that a file does not have, deletes of other partitions, files that
a table lists several times, vectors of paths that were added again.

    table = new_table(tmp_path, …)
    table.append(id_rows(range(4)))
    delete_positions(table, table.scan().plan_files()[0].file, [1, 100])
    list_again(table, file)
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_iceberg.commit.actions.append import AppendFiles
from airflow_iceberg.commit.actions.row_delta import RowDelta
from airflow_iceberg.expressions.tree import ALWAYS_FALSE
from airflow_iceberg.format.manifests.entries import DataFile
from airflow_iceberg.operations.add_files import AddFilesRequest, add_files
from airflow_iceberg.operations.compact import CompactRequest, compact
from airflow_iceberg.operations.delete import DeleteRequest, delete
from airflow_iceberg.operations.rewrite_manifests import RewriteManifestsRequest, rewrite_manifests
from airflow_iceberg.operations.work import Work
from airflow_iceberg.table import Table
from tests.support.builders import job_work, new_table
from tests.support.changes import equality_deletes, live_entries, write_position_deletes, write_vector

BEYOND = (100, 101, 102, 70_000)


def positions_file(table: Table, file: DataFile, positions: Iterable[int], **place: Any) -> DataFile:
    """Write deletes by position of a data file, a vector or a position delete file, in another place if one is given.

    Args:
        place: spec_id and partition.
    """
    write = write_vector if table.metadata.format_version >= 3 else write_position_deletes
    return replace(write(table.io, file, positions), **place)


class UncheckedRowDelta(RowDelta):
    """A commit of another writer, who does not look in which places a table lists a file."""

    def check_places(self, *_: object) -> None:
        pass


def add_deletes(table: Table, *deletes: DataFile, removed: Iterable[DataFile] = ()) -> None:
    """Commit delete files, and remove others, without a check."""
    action = UncheckedRowDelta(
        table.io,
        table.commit_settings(),
        added_deletes=deletes,
        removed_deletes=tuple(removed),
        conflict_filter=ALWAYS_FALSE,
        written_schema=table.schema(),
        starting_snapshot_id=table.metadata.current_snapshot_id,
    )
    table.commit(action)


def delete_positions(table: Table, file: DataFile, positions: Iterable[int], **place: Any) -> None:
    add_deletes(table, positions_file(table, file, positions, **place))


def list_again(table: Table, file: DataFile, times: int = 1) -> None:
    """Append a file that the table has already, or had."""
    again = replace(file, first_row_id=None)
    action = AppendFiles(table.io, [again] * times, table.commit_settings(), written_schema=table.schema())
    table.commit(action)


def only_file(table: Table) -> DataFile:
    return table.scan().plan_files()[0].file


# -- random tables with such deletes, changes of them, and what these mean for the rows --------------------------------

Row = tuple[int, str, int]
COW, MOR = "copy-on-write", "merge-on-read"
SCHEMA = {"id": "long", "part": "string", "v": "long"}


def arrow_rows(rows: Iterable[Row]) -> pa.Table:
    ids, parts, values = zip(*rows, strict=True)
    return pa.table({"id": pa.array(ids, pa.int64()), "part": list(parts), "v": pa.array(values, pa.int64())})


def rows_of(table: Table, **scan: Any) -> Counter[Row]:
    found = table.scan(**scan).to_arrow_batch_reader().read_all()
    return Counter(zip(*(found[name].to_pylist() for name in SCHEMA), strict=True))


@dataclass(kw_only=True)
class Place:
    """A place where the table lists a file, and the positions of its rows that are left.

    Attributes:
        is_bare: whether the file lacks the column of the partition.
    """

    file: DataFile
    rows: list[Row]
    left: set[int]
    is_bare: bool = False

    def live(self) -> list[Row]:
        return [self.rows[at] for at in sorted(self.left)]


@dataclass(kw_only=True)
class OddTable:
    """A table that other writers have made; `rows` is the judge: it follows what each step means, and reads nothing."""

    table: Table
    random: random.Random
    folder: Path
    places: list[Place] = field(default_factory=list)
    positions: dict[str, set[int]] = field(default_factory=dict)
    next_id: int = 0
    was_split: bool = False
    was_spread: bool = False

    @classmethod
    def make(cls, folder: Path, seed: int) -> OddTable:
        chance = random.Random(seed)
        partition_by = chance.choice([(), ("part",)])
        properties = {"format-version": str(chance.choice([2, 3, 3]))}
        odd = cls(
            table=new_table(folder, schema=SCHEMA, partition_by=partition_by, properties=properties),
            random=chance,
            folder=folder,
        )
        odd.append()
        for _ in range(chance.randint(2, 5)):
            chance.choice([odd.append, odd.list_again, odd.delete_positions, odd.delete_positions, odd.delete_keys,
                           odd.add_anew, odd.add_file, odd.list_elsewhere])()  # fmt: skip
        return odd

    @property
    def rows(self) -> Counter[Row]:
        return Counter(row for place in self.places for row in place.live())

    @property
    def is_split(self) -> bool:
        """Whether a file has other deleted positions in each of its places, so that it can have no common vector."""
        if self.is_spread:
            return True
        by_path: dict[str, set[frozenset[int]]] = {}
        for place in self.places:
            by_path.setdefault(place.file.file_path, set()).add(frozenset(place.left))
        if self.table.metadata.format_version < 3:
            return False
        return self.was_split or any(len(found) > 1 for found in by_path.values())

    @property
    def is_spread(self) -> bool:
        """Whether a file is in several partitions, so that it can have no deletes by position."""
        return self.was_spread or any(map(self._is_spread, self.places))

    def _is_spread(self, place: Place) -> bool:
        return len({one.file.partition for one in self.places if one.file.file_path == place.file.file_path}) > 1

    # -- what other writers do -----------------------------------------------------------------------------------------

    def append(self) -> None:
        part, count = self.random.choice("ab"), self.random.randint(1, 5)
        rows = self._new_rows(part, count)
        self._placed(rows, lambda: self.table.append(arrow_rows(rows)))

    def add_file(self) -> None:
        """Add a file of Hive, without the column of its partition."""
        part, count = self.random.choice("ab"), self.random.randint(1, 5)
        if not self.table.metadata.spec().fields:
            return
        rows = self._new_rows(part, count)
        path = self.folder / f"hive{self.next_id}" / f"part={part}" / "f.parquet"
        path.parent.mkdir(parents=True)
        pq.write_table(arrow_rows(rows).drop_columns("part"), path)
        request = AddFilesRequest(source=path.parent.parent.as_uri())
        self._placed(rows, lambda: add_files(Work(self.table), request), is_bare=True)

    def _new_rows(self, part: str, count: int) -> list[Row]:
        self.next_id += count
        return [(self.next_id - count + number, part, number) for number in range(count)]

    def _placed(self, rows: list[Row], write: Callable[[], Any], **more: Any) -> None:
        known = {place.file.file_path for place in self.places}
        write()
        (file,) = {f.file_path: f for f in self._files() if f.file_path not in known}.values()
        self.places.append(Place(file=file, rows=rows, left=set(range(len(rows))), **more))

    def _files(self) -> list[DataFile]:
        return [task.file for task in self.table.scan().plan_files()]

    def list_again(self) -> None:
        place, times = self.random.choice(self.places), self.random.randint(1, 2)
        list_again(self.table, place.file, times)
        self.places += [replace(place, left=set(range(len(place.rows)))) for _ in range(times)]

    def list_elsewhere(self) -> None:
        """List a file in the other partition, too: its rows have that partition's value there."""
        self.add_file()
        for place in [place for place in self.places if place.is_bare][-1:]:
            part = "b" if place.file.partition == ("a",) else "a"
            file = replace(place.file, partition=(part,))
            list_again(self.table, file)
            rows = [(number, part, value) for number, _, value in place.rows]
            self.places.append(Place(file=file, rows=rows, left=set(range(len(rows))), is_bare=True))

    def delete_positions(self) -> None:
        """Mark rows, and positions that the file does not have; a vector has those of the one before it, too."""
        place = self.random.choice(self.places)
        if self._is_spread(place):
            return
        path = place.file.file_path
        some = {at for at in range(len(place.rows)) if self.random.random() < 0.3}
        some |= {*self.random.sample(BEYOND, 2), len(place.rows)}
        before = []
        if self.table.metadata.format_version >= 3:
            some |= self.positions.get(path, set())
            entries = [entry.data_file for entry in live_entries(self.table)]
            before = [one for one in entries if one.is_deletion_vector and one.referenced_data_file == path]
            self.positions[path] = some
        add_deletes(self.table, positions_file(self.table, place.file, some), removed=before)
        for one in self.places:
            if one.file.file_path == path:
                one.left -= some

    def delete_keys(self) -> None:
        """Delete some ids of a partition by an equality delete."""
        place = self.random.choice(self.places)
        ids = {row[0] for row in place.rows if self.random.random() < 0.4} or {place.rows[0][0]}
        file = place.file
        add_deletes(self.table, equality_deletes(self.table, ids, file.spec_id, file.partition))
        for one in self.places:
            if one.file.partition != file.partition:
                continue
            one.left -= {at for at, row in enumerate(one.rows) if row[0] in ids}

    def add_anew(self) -> None:
        """Remove a file, and add it again under a vector that is older."""
        place = self.random.choice(self.places)
        path = place.file.file_path
        files = [one.file for one in self.places if one.file.file_path == path]
        common = {
            "written_schema": self.table.schema(),
            "starting_snapshot_id": self.table.metadata.current_snapshot_id,
        }
        self.table.commit(RowDelta(self.table.io, self.table.commit_settings(), removed_data=files, **common))
        some = {0, len(place.rows) + 3}
        add_deletes(self.table, positions_file(self.table, place.file, some))
        list_again(self.table, place.file)
        self.positions[path] = some
        self.places = [one for one in self.places if one.file.file_path != path]
        self.places.append(replace(place, left=set(range(len(place.rows)))))

    # -- what we do, and what it means ---------------------------------------------------------------------------------

    def change(self) -> tuple[str, Callable[[], Any], Counter[Row]]:
        """Return a change of the table: its name, what makes it, and the rows afterwards."""
        rows, mode = self.rows, self.random.choice([COW, MOR])
        ids = sorted({row[0] for row in rows})
        some = set(self.random.sample(ids, min(len(ids), self.random.randint(1, 3)))) or {-1}
        text = f"id in ({', '.join(map(str, sorted(some)))})"
        table, new = self.table, {number: (number, self.random.choice("ab"), 100 + number) for number in [*some, 999]}
        without = Counter({row: n for row, n in rows.items() if row[0] not in some})
        hit, unmatched = rows - without, Counter({row: n for row, n in rows.items() if row[0] not in new})
        replaced = Counter[Row]()
        for row, count in (rows - unmatched).items():
            replaced[new[row[0]]] += count
        inserted = Counter(row for number, row in new.items() if number not in ids)
        part = self.random.choice("ab")
        in_part = Counter({row: n for row, n in rows.items() if row[1] == part})
        raised = Counter[Row]()
        for row, count in hit.items():
            raised[row[0], row[1], row[2] + 1] += count
        only = (999, part, 1)
        changes: list[tuple[str, Callable[[], Any], Counter[Row]]] = [
            (f"delete {mode}", lambda: table.delete(text, mode=mode, max_rows=hit.total()), without),
            (
                f"delete in a job {mode}",
                lambda: delete(job_work(table), DeleteRequest(predicate=text, mode=mode)),
                without,
            ),
            (f"delete part {mode}", lambda: table.delete(f"part = '{part}'", mode=mode), rows - in_part),
            (f"update {mode}", lambda: table.update({"v": "v + 1"}, text, mode=mode), without + raised),
            (
                f"upsert {mode}",
                lambda: table.upsert(arrow_rows(new.values()), ["id"], mode=mode),
                unmatched + replaced + inserted,
            ),
            (
                f"merge {mode}",
                lambda: table.merge(arrow_rows(new.values()), ["id"], "when matched then delete", mode=mode),
                unmatched,
            ),
            (
                "overwrite",
                lambda: table.overwrite(arrow_rows([only]), text, check_filter=False),
                without + Counter([only]),
            ),
            ("overwrite all", lambda: table.overwrite(arrow_rows([only])), Counter([only])),
            (
                "compact",
                lambda: compact(job_work(table), CompactRequest(options=self._options(), where=self._where(part))),
                rows,
            ),
            ("manifests", lambda: rewrite_manifests(Work(table), RewriteManifestsRequest()), rows),
        ]
        return self.random.choice(changes)

    def follow(self, rows: Counter[Row]) -> None:
        """Take the rows after a change for those of the table, wherever they are now."""
        self.was_split, self.was_spread, known = self.is_split, self.is_spread, self.places[0].file
        self.places = [Place(file=known, rows=list(rows.elements()), left=set(range(rows.total())))]

    def _options(self) -> dict[str, Any]:
        chance = self.random
        return {
            "rewrite-all": chance.random() < 0.6,
            "delete-file-threshold": chance.choice([1, 2]),
            "max-file-group-input-files": chance.choice([1, 2, 100]),
            "remove-dangling-deletes": chance.random() < 0.5,
        }

    def _where(self, part: str) -> str | None:
        return self.random.choice([None, f"part = '{part}'"])
