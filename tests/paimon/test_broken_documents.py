"""A torn, missing or foreign file of any kind gives an error with the file, and never an empty table."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from airflow_iceberg.errors import FormatError, IcebergError, NotFoundError, UnsupportedError
from airflow_iceberg.paimon.table import PaimonTable
from airflow_iceberg.storage.stores.fsspec_io import load_file_io
from tests.support.paimon_tables import table as reference

# kind of document: a reference table that has it, and which of its files that is
KINDS = {
    "schema": ("dv_append", "schema/schema-0"), "snapshot": ("dv_append", "snapshot/snapshot-4"),
    "base manifest list": ("dv_append", "baseManifestList"), "delta manifest list": ("dv_append", "deltaManifestList"),
    "changelog manifest list": ("pk_changelog", "changelogManifestList"),
    "manifest": ("dv_append", "manifest/manifest-[!l]*"), "index manifest": ("dv_append", "indexManifest"),
    "deletion vectors": ("dv_append", "index/index-*"), "hash index": ("pk_dynamic", "index/index-*"),
    "tag": ("refs", "tag/tag-*"), "statistics": ("dv_append", "statistics/stat-1"),
}  # fmt: skip
DAMAGE: dict[str, Callable[[bytes], bytes | None]] = {
    "missing": lambda data: None,
    "empty": lambda data: b"",
    "torn": lambda data: data[: len(data) // 2],
    "cut by a byte": lambda data: data[:-1],
    "foreign": lambda data: b"x" * len(data),
}


def read_everything(location: str) -> None:
    table = PaimonTable(location, load_file_io())
    table.schemas()
    table.tags()
    for snapshot in table.snapshots():
        list(table.stats(table.live_files(snapshot)))
        table.changelog_files(snapshot)
        table.statistics(snapshot)
        list(table.read_vectors(table.deletion_vectors(snapshot)))
        for index in table.index_files(snapshot):
            if index.index_type == "HASH":
                table.hashes(index)


def file_of(folder: Path, pattern: str) -> Path:
    if "/" in pattern:
        return sorted(folder.glob(pattern))[-1]
    latest = sorted(folder.glob("snapshot/snapshot-*"), key=lambda path: int(path.name.rpartition("-")[2]))[-1]
    return folder / "manifest" / json.loads(latest.read_text())[pattern]


def with_statistics(folder: Path) -> None:
    """Give the latest snapshot a statistics file, which neither pypaimon nor paimon-rust can write."""
    path = folder / "snapshot" / "snapshot-5"
    path.write_text(json.dumps({**json.loads(path.read_text()), "statistics": "stat-1"}))
    (folder / "statistics").mkdir()
    (folder / "statistics" / "stat-1").write_text(json.dumps({"snapshotId": 5, "schemaId": 0, "colStats": {}}))


# Any bytes are hashes: a file of the right size cannot be told from another one.
CASES = [(kind, damage) for kind in KINDS for damage in DAMAGE if (kind, damage) != ("hash index", "foreign")]


@pytest.mark.parametrize(("kind", "damage"), CASES)
class TestABrokenDocument:
    """It is named in the error, whatever is wrong with it."""

    def test_is_named(self, kind, damage, tmp_path):
        name, pattern = KINDS[kind]
        folder = tmp_path / name
        shutil.copytree(reference(name).folder, folder)
        if kind == "statistics":
            with_statistics(folder)
        read_everything(str(folder))
        path = file_of(folder, pattern)
        broken = DAMAGE[damage](path.read_bytes())
        path.unlink()
        if broken is not None:
            path.write_bytes(broken)
        if (kind, damage) == ("tag", "missing"):
            with pytest.raises(NotFoundError, match=f"^no tag '{path.name.removeprefix('tag-')}' of table"):
                PaimonTable(str(folder), load_file_io()).tag(path.name.removeprefix("tag-"))
            return
        with pytest.raises((FormatError, NotFoundError, UnsupportedError)) as caught:
            read_everything(str(folder))
        assert path.name in str(caught.value) or "no Paimon table" in str(caught.value)
        if (kind, damage) == ("manifest", "missing"):
            assert str(caught.value).startswith(f"cannot read {path}: expected the manifest of snapshot ")
        if isinstance(caught.value, FormatError):
            assert Path(str(caught.value.path)).name == path.name
        assert isinstance(caught.value, IcebergError)
