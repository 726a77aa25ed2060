"""Appenders, deleters, overwriters and maintenance on one table, in processes that are killed: nothing is damaged."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from airflow_iceberg.commit.operation_key import OperationKey
from tests.stress.__main__ import make_table
from tests.stress.actors import ROLES, Actor, Stage
from tests.stress.judge import judge

ROOT = Path(__file__).parents[2]
SHORT = ("--rounds", "5", "--mortality", "0.25", "--kill-every", "1.5")
LONG = ("--seconds", "600", "--mortality", "0.1", "--kill-every", "2")


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
    def test_nothing_is_damaged(self, catalog, version, length, tmp_path):
        words = ["--catalog", catalog, "--format-version", str(version), "--folder", str(tmp_path), *length]
        command = [sys.executable, "-m", "tests.stress", *words]
        ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=3600)  # of one that hangs
        assert ended.returncode == 0, ended.stdout[-4000:] + ended.stderr[-4000:]
        verdict = json.loads((tmp_path / "verdict.json").read_text())
        assert verdict["faults"] == []
        assert verdict["deaths"] > 0
        assert {kind for kind, counts in verdict["operations"].items() if counts.get("landed")} >= {"append"}


class TestTheJudge:
    """He sees each kind of damage, so that his silence means something."""

    @pytest.fixture
    def stage(self, tmp_path):
        """A table after two operations of everybody, one after the other."""
        stage = Stage(tmp_path, "hadoop", 3, seed=7, mortality=0.0, pause_s=0.0)
        make_table(stage)
        for rounds in (1, 2):
            for role in ("append", *ROLES):
                Actor(stage, role, f"{role}0", rounds=rounds).act()
        return stage

    def test_finds_nothing_where_nothing_is(self, stage):
        verdict = judge(stage)
        assert verdict.faults == []
        assert verdict.counts["rows"] > 0

    KEY = OperationKey(dag_id="stress", run_id="append0", task_id="op-9")
    STRANGE = {"part": "a", "k": 1, "tag": "append0:0", "n": 10_000}

    @pytest.mark.parametrize(
        ("damage", "faults"),
        [
            (lambda table: table.append(table.scan().to_arrow().slice(0, 1)), ["rows doubled"]),
            (lambda table: table.delete(f"n = 0 and tag = '{table.scan().to_arrow()['tag'][0]}'"), ["rows lost"]),
            (lambda table: table.append(pa.Table.from_pylist([TestTheJudge.STRANGE])), ["rows too many"]),
            (
                lambda table: table.append(table.scan().to_arrow().slice(0, 1), operation_key=TestTheJudge.KEY),
                ["op-9 landed, and nobody knows"],
            ),
            (
                lambda table: table.io.delete([table.scan().plan_files()[0].file.file_path]),
                ["cannot be read", "files are missing"],
            ),
            (lambda table: table.overwrite(table.scan().to_arrow()), ["last changed by another commit"]),
        ],
        ids=["rows twice", "rows lost", "rows back again", "a commit unknown", "a file missing", "another lineage"],
    )
    def test_sees_damage(self, stage, damage, faults):
        damage(stage.load())
        found = judge(stage).faults
        assert all(any(part in fault for fault in found) for part in faults)
