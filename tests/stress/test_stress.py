"""Appenders, deleters, overwriters and maintenance on one table, in processes that are killed: nothing is damaged."""

import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from airflow_iceberg.commit.operation_key import OperationKey
from tests.stress import storm
from tests.stress.__main__ import make_table
from tests.stress.actors import ROLES, Actor, Stage
from tests.stress.judge import judge
from tests.stress.storm import judge as judge_storm
from tests.support.sampling import SEED

ROOT = Path(__file__).parents[2]
SHORT = ("--rounds", "5", "--mortality", "0.25", "--kill-every", "1.5")
LONG = ("--seconds", "600", "--mortality", "0.1", "--kill-every", "2")


def untold() -> OperationKey:
    """A key of work that begins now, so that no earlier try of it can have left the history."""
    return OperationKey(dag_id="stress", run_id="append0", task_id="op-9", started_ms=int(time.time() * 1000) + 1)


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


# Catalog and weather. Without a service there is no network: the catalog itself loses answers.
CALM, STORMS = ("sqlite", "hadoop"), (("rest", "lost"), ("rest", "repeated"), ("s3", "lost"), ("s3", "repeated"))
LONG_STORMS = (*((catalog, "lost") for catalog in CALM), *STORMS, ("rest", "outage"), ("s3", "outage"))


class TestTheStorm:
    """Appends while answers are lost and somebody expires all but the last snapshot: 0 lost, 0 doubled, readable."""

    def run(self, folder: Path, catalog: str, climate: str, seconds: int, seed: int = 1) -> None:
        words = ["--catalog", catalog, "--climate", climate, "--seconds", str(seconds), "--seed", str(seed)]
        ended = subprocess.run(
            [sys.executable, "-m", "tests.stress.storm", *words, "--folder", str(folder / "storm")],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=1200,  # of a storm that hangs
        )
        assert ended.returncode == 0, ended.stdout[-4000:] + ended.stderr[-4000:]
        verdict = json.loads((folder / "storm" / "verdict.json").read_text())
        assert verdict["faults"] == []
        assert verdict["told"]["append"]["landed"] > 0
        assert verdict["told"]["expire"]["committed"] > 0

    @pytest.mark.services
    @pytest.mark.parametrize("catalog", CALM)
    def test_a_short_one_without_a_network(self, catalog: str, tmp_path: Path) -> None:
        self.run(tmp_path, catalog, "lost", seconds=5)

    @pytest.mark.services
    @pytest.mark.parametrize(("catalog", "climate"), [*STORMS, ("s3", "short outages")])
    def test_a_short_one_over_a_network(self, catalog: str, climate: str, tmp_path: Path) -> None:
        self.run(tmp_path, catalog, climate, seconds=20)

    @pytest.mark.long
    @pytest.mark.parametrize(("catalog", "climate"), LONG_STORMS)
    def test_of_ninety_seconds(self, catalog: str, climate: str, tmp_path: Path) -> None:
        self.run(tmp_path, catalog, climate, seconds=90, seed=SEED)


class TestTheJudgeOfTheStorm:
    """He counts each append against what its caller was told."""

    @pytest.fixture
    def actor(self, tmp_path: Path) -> storm.Actor:
        properties = {"type": "hadoop", "warehouse": tmp_path.as_uri()}
        storm.make_table(properties, seed=1)
        (tmp_path / "journal").mkdir()
        return storm.Actor(name="append0", folder=tmp_path, properties=properties, dice=Random(3), losses=0.0)

    @pytest.mark.parametrize(("told", "times", "fault"), [
        ("landed", 1, None), ("landed", 0, "lost"), ("landed", 2, "there 2 times"), ("refused", 0, None),
        ("refused", 1, "is there"), ("unknown", 0, None), ("unknown", 1, None), ("unknown", 2, "there 2 times"),
        ("nothing", 0, "no answer to rows"), ("nothing", 1, "no answer to rows"), ("begun", 1, None),
    ])  # fmt: skip
    def test_what_was_told_and_is_there(self, actor: storm.Actor, told: str, times: int, fault: str | None) -> None:
        for _ in range(times):
            actor.load().append(pa.table({"tag": ["append0:7"] * 3, "n": range(3)}))
        actor.note("append0:7", told, count=3)
        faults = judge_storm(actor.folder, actor.properties)["faults"]
        assert [fault in found for found in faults] == ([True] if fault else [])

    @pytest.mark.parametrize(("told", "rows", "is_right"), [
        (["landed:2"], [0, 1], True), (["landed:2"], [0], False), (["landed:2"], [0, 1, 1], False),
        (["landed:2", "refused:1"], [0, 1], True), (["landed:2", "refused:1"], [100], False),
        (["landed:2", "unknown:1"], [0, 1], True), (["landed:2", "unknown:1"], [100], True),
        (["landed:2", "unknown:1"], [0, 1, 100], False), (["landed:2", "unknown:1", "landed:0"], [], True),
        (["landed:2", "landed:0", "nothing:0"], [], True), (["landed:2", "nothing:0"], [], False),
        (["landed:2", "landed:1"], [0, 1], False),
    ])  # fmt: skip
    def test_what_an_actor_has_left_of_his_own_rows(
        self, actor: storm.Actor, told: list[str], rows: list[int], is_right: bool
    ) -> None:
        actor.load().append(pa.table({"tag": ["replace0"] * len(rows), "n": pa.array(rows, pa.int64())}))
        for number, (word, _, count) in enumerate(one.partition(":") for one in told):
            actor.note(f"replace0:{number}", word, count=int(count))
        assert (judge_storm(actor.folder, actor.properties)["faults"] == []) == is_right

    def test_rows_in_part_or_of_nobody_and_missing_files(self, actor: storm.Actor) -> None:
        table = actor.load()
        table.append(pa.table({"tag": ["append0:1", "append0:9"], "n": [0, 0]}))
        actor.note("append0:1", "unknown", count=3)
        faults = judge_storm(actor.folder, actor.properties)["faults"]
        assert "there in part, with 1 rows" in faults[0]
        assert faults[1] == "rows of append0:9, which nobody appended"
        table.io.delete([table.refresh().scan().plan_files()[0].file.file_path])
        assert "the table cannot be read" in judge_storm(actor.folder, actor.properties)["faults"][0]

    @pytest.mark.costly
    def test_appends_that_went_well(self, actor: storm.Actor) -> None:
        for number in range(4):
            actor.append(number)
            replace(actor, name="replace0").replace(number)
        verdict = judge_storm(actor.folder, actor.properties)
        assert verdict["faults"] == []
        assert sum(verdict["told"]["append"].values()) == 4
        assert verdict["rows"] > 0


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

    @pytest.mark.costly
    def test_finds_nothing_where_nothing_is(self, stage: Stage) -> None:
        verdict = judge(stage)
        assert verdict.faults == []
        assert verdict.counts["rows"] > 0

    @pytest.mark.costly
    @pytest.mark.parametrize(
        ("damage", "fault"),
        [
            (lambda table: table.append(table.scan().to_arrow().slice(0, 1)), "rows doubled"),
            (lambda table: table.delete(f"n = 0 and tag = '{table.scan().to_arrow()['tag'][0]}'"), "rows lost"),
            (lambda table: table.append(row("append0:0", n=10_000)), "rows too many"),
            (lambda table: table.append(row("x"), operation_key=untold()), "op-9 landed, and nobody knows"),
            (lambda table: table.overwrite(table.scan().to_arrow()), "last changed by another commit"),
        ],
        ids=["twice", "lost", "back again", "of a commit that nobody was told of", "of another lineage"],
    )
    def test_sees_rows_that_are_not_as_they_have_to_be(self, stage: Stage, damage: Any, fault: str) -> None:
        damage(stage.load())
        assert any(fault in found for found in judge(stage).faults)

    @pytest.mark.costly
    def test_sees_files_that_are_missing(self, stage: Stage) -> None:
        table = stage.load()
        table.io.delete([table.scan().plan_files()[0].file.file_path])
        faults = judge(stage).faults
        assert any("cannot be read" in fault for fault in faults)
        assert any("files are missing" in fault for fault in faults)
