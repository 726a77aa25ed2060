"""Paimon tables as pypaimon and paimon-rust read them, and as we do: the reference tables, and tables made just now.

The rules are those of `tests/paimon/test_reference_tables.py`; only who says what has to come out is another.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.paimon.test_reference_tables import (
    TestIndexFiles,
    TestInspection,
    TestLiveFiles,
    TestSchemasTagsBranches,
    TestSnapshots,
)
from tests.support.paimon_env import peer
from tests.support.paimon_tables import PaimonReference, golden_root

__all__ = ["TestIndexFiles", "TestInspection", "TestLiveFiles", "TestSchemasTagsBranches", "TestSnapshots"]

FRESH = (
    *("append", "changelog", "deletion_vectors", "dynamic_bucket", "evolved", "no_stats", "partitioned"),
    *("primary_key", "refs", "types"),
)
ARCHIVE = (
    *("append_nostats", "append_part", "append_plain", "data_evolution", "dv64_synth", "dv_append", "external_path"),
    *("fmt_avro", "fmt_orc", "nested", "pk_changelog", "pk_dynamic", "pk_fixed", "refs", "rust_part", "rust_pk_dv"),
    "types",
)
# What pypaimon cannot read, by its own words; paimon-rust is asked about all tables.
NOT_FOR_PYPAIMON = {("archive", "dv64_synth"): "magic number"}

Answers = Mapping[tuple[str, str], Any]
TABLES = [*(("fresh", name) for name in FRESH), *(("archive", name) for name in ARCHIVE)]


@pytest.fixture(scope="module")
def roots(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    fresh = tmp_path_factory.mktemp("paimon")
    peer("write", fresh)
    return {"fresh": fresh, "archive": golden_root()}


@pytest.fixture(scope="module")
def by_pypaimon(roots: Mapping[str, Path]) -> Answers:
    return {(kind, name): answer for kind, root in roots.items() for name, answer in peer("describe", root).items()}


@pytest.fixture(scope="module")
def by_rust(roots: Mapping[str, Path]) -> Answers:
    return {(kind, name): answer for kind, root in roots.items() for name, answer in peer("rust", root).items()}


@pytest.fixture(params=[key for key in TABLES if key not in NOT_FOR_PYPAIMON], ids="-".join)
def reference(
    request: pytest.FixtureRequest, roots: Mapping[str, Path], by_pypaimon: Answers, tmp_path: Path
) -> PaimonReference:
    kind, name = request.param
    expected = by_pypaimon[request.param]
    assert "error" not in expected, expected
    (tmp_path / "warehouse").symlink_to(roots[kind] / "warehouse")
    (tmp_path / "expected").mkdir()
    (tmp_path / "expected" / f"{name}.json").write_text(json.dumps(expected))
    return PaimonReference(name=name, root=tmp_path)


class TestTheListOfTables:
    """Every table is compared, but for those that a reader gives up on, each with its reason."""

    @pytest.mark.services
    def test_is_complete(self, by_pypaimon: Answers, by_rust: Answers) -> None:
        assert set(by_pypaimon) == set(by_rust) == set(TABLES)

    @pytest.mark.parametrize("key", NOT_FOR_PYPAIMON, ids="-".join)
    def test_what_pypaimon_gives_up_on_it_still_does(self, by_pypaimon: Answers, key: tuple[str, str]) -> None:
        assert NOT_FOR_PYPAIMON[key] in by_pypaimon[key]["error"].lower()


@pytest.mark.parametrize("key", TABLES, ids="-".join)
class TestPaimonRust:
    """It tells snapshots, tags, columns, and the sums of the live files by partition."""

    @pytest.mark.costly
    def test_agrees(self, key: tuple[str, str], roots: Mapping[str, Path], by_rust: Answers) -> None:
        kind, name = key
        table, answer = PaimonReference(name=name, root=roots[kind]).open(), by_rust[key]
        assert "error" not in answer, answer
        snapshots = {str(item.id): [item.commit_kind, item.time_ms] for item in table.snapshots()}
        assert snapshots == answer["snapshots"]
        assert {tag.name: tag.snapshot.id for tag in table.tags()} == answer["tags"]
        assert [[field.id, field.name] for field in table.schema().fields] == answer["fields"]
        sums = table.inspect.partitions().select(["record_count", "file_count", "file_size_in_bytes"])
        found = sorted(map(list, zip(*sums.to_pydict().values(), strict=True)))
        assert [item for item in found if item[1]] == sorted(item for item in answer["partitions"] if item[1])
