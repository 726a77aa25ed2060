"""The reference tables of Paimon: extracted once per session, each with what it must be read as.

`tests/golden` holds the tables written by pypaimon and paimon-rust. `PAIMON_TABLES` names a folder with more of the
same layout, extracted (`expected/NAME.json` beside `warehouse/db.db/NAME`) or in archives, at any depth. Without it the
tables beside this repository are taken where they are: they are test data of others, and never part of it.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from airflow_iceberg.paimon.table import PaimonTable
from airflow_iceberg.storage.stores.fsspec_io import load_file_io
from tests.support.golden import extracted, session_folder

REPOSITORY = Path(__file__).resolve().parents[2]
GOLDEN = REPOSITORY / "tests" / "golden" / "paimon-tables.tar.gz"
BESIDE = REPOSITORY.parent / "shared" / "reference" / "paimon-java-tables.tar.gz"


@dataclass(frozen=True, kw_only=True, slots=True)
class PaimonReference:
    """A reference table.

    Attributes:
        root: folder with `expected` and `warehouse`.
    """

    name: str
    root: Path

    @property
    def folder(self) -> Path:
        return next(self.root.glob(f"warehouse/*.db/{self.name}"))

    @property
    def expected(self) -> Any:
        return _expected(self.root / "expected" / f"{self.name}.json")

    def open(self, branch: str = "main") -> PaimonTable:
        return PaimonTable.load(str(self.folder), load_file_io(), branch=branch)


@cache
def _expected(path: Path) -> Any:
    return json.loads(path.read_text("utf-8"))


@cache
def tables() -> tuple[PaimonReference, ...]:
    return tuple(
        PaimonReference(name=path.stem, root=root)
        for root in roots()
        for path in sorted((root / "expected").glob("*.json"))
    )


def table(name: str) -> PaimonReference:
    return next(item for item in tables() if item.name == name)


@cache
def roots() -> tuple[Path, ...]:
    target = session_folder("paimon-golden-")
    sources = [GOLDEN, Path(given) if (given := os.environ.get("PAIMON_TABLES")) else BESIDE]
    return tuple(root for number, source in enumerate(sources) for root in _roots(source, target / str(number)))


def golden_root() -> Path:
    """Return the folder with the tables of the repository's own archive."""
    return roots()[0]


def _roots(source: Path, target: Path) -> Iterator[Path]:
    archives = [source] if source.is_file() else sorted(source.glob("**/*.tar.gz"))
    for number, archive in enumerate(archives):
        extracted(archive, target / str(number))
    for folder in (target, source):
        for expected in sorted(folder.glob("**/expected")):
            if (expected.parent / "warehouse").is_dir():
                yield expected.parent
