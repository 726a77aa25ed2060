"""Appenders, deleters, overwriters and maintenance on one table, in processes that are killed: nothing is damaged."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_iceberg.commit.operation_key import OperationKey
from tests.stress.__main__ import make_table
from tests.stress.actors import ROLES, Actor, Stage
from tests.stress.judge import judge

ROOT = Path(__file__).parents[2]
SHORT = ("--rounds", "5", "--mortality", "0.25", "--kill-every", "1.5")
LONG = ("--seconds", "600", "--mortality", "0.1", "--kill-every", "2")


UNTOLD = OperationKey(dag_id="stress", run_id="append0", task_id="op-9")


def row(tag: str, *, n: int = 1) -> pa.Table:
    return pa.Table.from_pylist([{"part": "a", "k": 1, "tag": tag, "n": n}])


class TestTheStress:
    """0 rows lost, doubled or resurrected; conflicts end as rebase, re-plan or refuse and never as damage."""

    @pytest.mark.parametrize(("catalog", "version"), [("sqlite", 2), ("hadoop", 3)])
    @pytest.mark.parametrize(
        "length",
        [
            pytest.param(SHORT, id="short", marks=pytest.mark.services),
            pytest.param(LONG, id="ten minutes", marks=pytest.mark.long),
        ],
    )
    def test_nothing_is_damaged(self, catalog: str, version: int, length: tuple[str, ...], tmp_path: Path) -> None:
        words = ["--catalog", catalog, "--format-version", str(version), "--folder", str(tmp_path), *length]
        ended = subprocess.run(
            [sys.executable, "-m", "tests.stress", *words],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=3600,  # of a stress that hangs
        )
        assert ended.returncode == 0, ended.stdout[-4000:] + ended.stderr[-4000:]
        verdict = json.loads((tmp_path / "verdict.json").read_text())
        assert verdict["faults"] == []
        assert verdict["deaths"] > 0
        assert {kind for kind, counts in verdict["operations"].items() if counts.get("landed")} >= {"append"}


class TestTheJudge:
    """He sees each kind of damage, so that his silence means something."""

    @pytest.fixture
    def stage(self, tmp_path: Path) -> Stage:
        """A table after two operations of everybody, one after the other."""
        stage = Stage(tmp_path, "hadoop", 3, seed=7, mortality=0.0, pause_s=0.0)
        make_table(stage)
        for rounds in (1, 2):
            for role in ("append", *ROLES):
                Actor(stage, role, f"{role}0", rounds=rounds).act()
        return stage

    def test_finds_nothing_where_nothing_is(self, stage: Stage) -> None:
        verdict = judge(stage)
        assert verdict.faults == []
        assert verdict.counts["rows"] > 0

    @pytest.mark.parametrize(
        ("damage", "fault"),
        [
            (lambda table: table.append(table.scan().to_arrow().slice(0, 1)), "rows doubled"),
            (lambda table: table.delete(f"n = 0 and tag = '{table.scan().to_arrow()['tag'][0]}'"), "rows lost"),
            (lambda table: table.append(row("append0:0", n=10_000)), "rows too many"),
            (lambda table: table.append(row("x"), operation_key=UNTOLD), "op-9 landed, and nobody knows"),
            (lambda table: table.overwrite(table.scan().to_arrow()), "last changed by another commit"),
        ],
        ids=["twice", "lost", "back again", "of a commit that nobody was told of", "of another lineage"],
    )
    def test_sees_rows_that_are_not_as_they_have_to_be(self, stage: Stage, damage: Any, fault: str) -> None:
        damage(stage.load())
        assert any(fault in found for found in judge(stage).faults)

    def test_sees_files_that_are_missing(self, stage: Stage) -> None:
        table = stage.load()
        table.io.delete([table.scan().plan_files()[0].file.file_path])
        faults = judge(stage).faults
        assert any("cannot be read" in fault for fault in faults)
        assert any("files are missing" in fault for fault in faults)
