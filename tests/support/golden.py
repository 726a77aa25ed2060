"""The reference tables written by Iceberg Java: extracted once per session, found by name, readable where they are.

`REFERENCE_TABLES` names a folder to use instead of `tests/golden`: one with the same archives, or with what was
extracted from them (`iceberg-ref`).
"""

import atexit
import json
import os
import shutil
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from airflow_iceberg.storage.stores.fsspec_io import load_file_io
from tests.support.relocated_io import RelocatedFileIO

ARCHIVES = ("iceberg-tables.tar.gz", "iceberg-tables-2.tar.gz")
REFUSED = "v4_refuse"


@dataclass(frozen=True, kw_only=True, slots=True)
class GoldenTable:
    """A reference table.

    Attributes:
        folder: where it lies now.
        written_at: where the folder above `warehouse` was when it was written; not needed to be there any more.
        metadata_path: its current metadata file, where it lies now.
        io: reads the locations that stand in its metadata.
    """

    name: str
    folder: Path
    metadata_path: Path
    written_at: str
    io: RelocatedFileIO
    properties: Mapping[str, str]

    @property
    def metadata_location(self) -> str:
        """The location of the current metadata file as the table itself would spell it."""
        return f"{self.written_at}/{self.metadata_path.relative_to(_root(self.metadata_path))}"

    @property
    def expected(self) -> Any:
        return _read_json(self.expected_folder / "expected.json")

    @property
    def is_refused(self) -> bool:
        """Whether a reader must refuse the table: a format version that is not finished."""
        return bool(self.expected.get("must_refuse")) or self.expected["format_version"] > 3

    def expected_rows(self) -> list[Any]:
        """Return the rows of the table, in canonical JSON values, sorted."""
        return self.lines("rows.jsonl")

    def lines(self, name: str) -> list[Any]:
        # Not `splitlines`: texts in the rows may hold any of its line ends.
        text = (self.expected_folder / name).read_text("utf-8")
        return [json.loads(line) for line in text.split("\n") if line]

    @property
    def expected_folder(self) -> Path:
        """Where the files lie that say what the table holds."""
        return _root(self.folder) / "expected" / self.name


@cache
def roots() -> tuple[Path, ...]:
    """Return the folders that the archives were extracted to, each with `warehouse`, `expected` and so on."""
    given = os.environ.get("REFERENCE_TABLES")
    source = Path(given) if given else Path(__file__).parent.parent / "golden"
    found = tuple(path.parent for path in sorted(source.glob("**/warehouse")) if path.is_dir())
    return found or _extract(source)


def session_folder(name: str) -> Path:
    """Return a new folder that is removed when the session ends."""
    target, session = Path(tempfile.mkdtemp(prefix=name)), os.getpid()
    # A process forked by a test must not take the folder away from the session.
    atexit.register(lambda: shutil.rmtree(target, ignore_errors=True) if os.getpid() == session else None)
    return target


def extracted(archive: Path, folder: Path) -> Path:
    with tarfile.open(archive) as content:
        content.extractall(folder, filter="data")
    return folder


def _extract(source: Path) -> tuple[Path, ...]:
    target = session_folder("iceberg-golden-")
    return tuple(extracted(source / name, target / name.removesuffix(".tar.gz")) / "iceberg-ref" for name in ARCHIVES)


@cache
def tables() -> dict[str, GoldenTable]:
    """Return all reference tables by name, the one that must be refused too."""
    found = {}
    for root in roots():
        written_at = _written_at(root)
        io = RelocatedFileIO(load_file_io(), {f"file:{written_at}": str(root), written_at: str(root)})
        for folder in sorted((*root.glob("warehouse/db/*"), *root.glob("jdbc/db/*"))):
            expected = root / "expected" / folder.name / "expected.json"
            if expected.exists():
                path = _current_metadata(folder, expected)
                found[folder.name] = GoldenTable(
                    name=folder.name,
                    folder=folder,
                    metadata_path=path,
                    written_at=written_at,
                    io=io,
                    # Some tables were made of files that lie outside of their warehouse.
                    properties={"allowed-locations": written_at},
                )
    return found


def table(name: str) -> GoldenTable:
    return tables()[name]


def metadata_files(folder: Path) -> Iterator[Path]:
    """Yield the metadata files of a table, old ones too."""
    yield from sorted((folder / "metadata").glob("*.metadata.json"))


def _written_at(root: Path) -> str:
    """Return where the tables lay when they were written: absolute locations in them start with it."""
    for path in sorted(root.glob("expected/*/expected.json")):
        location = json.loads(path.read_text("utf-8"))["location"].removeprefix("file:")
        for folder in ("/warehouse/db/", "/jdbc/db/"):
            if folder in location:
                return str(location.partition(folder)[0])
    raise AssertionError(f"no table below {root} says where it was written")


def _current_metadata(folder: Path, expected: Path) -> Path:
    named = folder / json.loads(expected.read_text("utf-8")).get("metadata_file", "none")
    return named if named.is_file() else max(metadata_files(folder), key=_version)


@cache
def _read_json(path: Path) -> Any:
    return json.loads(path.read_text("utf-8"))


def _version(path: Path) -> int:
    """Return the number in `v3.metadata.json` or `00003-….gz.metadata.json`."""
    return int(path.name.lstrip("v").split(".")[0].split("-")[0])


def _root(path: Path) -> Path:
    return next(parent for parent in path.parents if (parent / "expected").is_dir())
