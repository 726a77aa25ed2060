"""Contests of two sides that do nothing but write down what happens to them."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.benchmarks.contest import Contest
from tests.benchmarks.line import Bench, Line, Run, Side
from tests.benchmarks.measure import Measurement
from tests.support.airflow_home import ROOT

MODULE = "tests.benchmarks.test_contest"
RUNS = 2


def say(bench: Bench, text: str) -> None:
    with (bench.folder / "diary").open("a") as diary:
        diary.write(f"{text} {os.getpid()}\n")


def side(name: str) -> Side:
    @contextmanager
    def opened(bench: Bench) -> Iterator[Run]:
        (bench.work / "left behind").touch()
        count = 0

        def run() -> float:
            nonlocal count
            count += 1
            say(bench, name)
            return float(count)

        yield run
        say(bench, f"{name}-end")

    return opened


@contextmanager
def broken(bench: Bench) -> Iterator[Run]:
    yield lambda: 1 / 0


TURNS = Line(
    name="turns",
    what="{rows} rows",
    against="another",
    ours=side("ours"),
    peer=side("peer"),
    goal=1,
    prepare=lambda bench: say(bench, "prepare"),
)
LIMIT = replace(TURNS, name="limit", peer=4.0)
LINES = (
    TURNS,
    LIMIT,
    replace(TURNS, name="apart", in_turns=False),
    replace(TURNS, name="often", warm_up=2, least_runs=3),
    replace(TURNS, name="broken", peer=broken),
)


def in_turns(*names: str) -> list[str]:
    """Return who runs: as the second of a round, one is slower than as the first or faster, so each begins in turn."""
    return [name for number in range(1 + RUNS) for name in names[:: -1 if number % 2 else 1]]


Found = tuple[Measurement, list[str], list[str]]


def contest(folder: Path, name: str, other: Path | None = None) -> Found:
    """Measure a line; return what came of it, who ran, and in which process."""
    (line,) = (line for line in LINES if line.name == name)
    found = Contest(folder=folder, rows=1000, runs=RUNS, other=other).measure(line, MODULE)
    names, processes = zip(*(entry.split() for entry in (folder / "diary").read_text().splitlines()), strict=True)
    return found, list(names), list(processes)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("turns")


@pytest.fixture(scope="module")
def turns(folder: Path) -> Found:
    return contest(folder, "turns")


class TestTurns:
    """Both sides are warmed up alike, in processes of their own; the warm-up does not count and the median does."""

    @pytest.mark.costly
    def test_sides_take_turns(self, turns: Found) -> None:
        found, names, _ = turns
        assert names[:-2] == ["prepare", *in_turns("ours", "peer")]
        assert sorted(names[-2:]) == ["ours-end", "peer-end"]
        assert (found.ours.values, found.peer.values) == ((2.0, 3.0), (2.0, 3.0))
        assert found.name == "1,000 rows, vs another, seconds"

    def test_each_side_and_the_preparation_have_a_process_of_their_own(self, turns: Found) -> None:
        _, names, processes = turns
        assert len(set(zip(names, processes, strict=True))) == len(set(names)) == 5
        assert len({*processes, str(os.getpid())}) == 4

    @pytest.mark.costly
    def test_one_side_after_the_other(self, tmp_path: Path) -> None:
        _, names, _ = contest(tmp_path, "apart")
        turns = 1 + RUNS
        assert names == ["prepare", *["ours"] * turns, "ours-end", *["peer"] * turns, "peer-end"]

    @pytest.mark.costly
    def test_a_line_may_ask_for_more_runs(self, tmp_path: Path) -> None:
        found, _, _ = contest(tmp_path, "often")
        assert (found.ours.values, found.peer.values) == ((3.0, 4.0, 5.0), (3.0, 4.0, 5.0))

    @pytest.mark.costly
    def test_a_limit_is_the_peer(self, tmp_path: Path) -> None:
        found, names, _ = contest(tmp_path, "limit")
        assert "peer" not in names
        assert (found.ours.median, found.peer.median, found.ratio) == (2.5, 4.0, 0.625)

    def test_memory_and_processor_time_of_each_process_are_told(self, turns: Found) -> None:
        found, _, _ = turns
        assert all(1 < peak < 10_000 for samples in (found.ours, found.peer) for peak in samples.peak_mb)
        assert len(found.ours.processor_seconds) == RUNS

    def test_nothing_is_left_behind(self, turns: Found, folder: Path) -> None:
        assert turns
        assert not list((folder / "work").iterdir())

    @pytest.mark.costly
    def test_a_side_that_breaks_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(RuntimeError, match=r"the process for peer of broken in .* has ended, with exit code 1"):
            contest(tmp_path, "broken")
        assert not list((tmp_path / "work").iterdir())


class TestComparedCheckouts:
    """Another checkout stands for the peer: our side of it, with its own code."""

    @pytest.mark.costly
    def test_the_other_checkouts_code_runs(self, tmp_path: Path) -> None:
        other = tmp_path / "other"
        benchmarks = other / "tests" / "benchmarks"
        benchmarks.mkdir(parents=True)
        for name in ("line.py", "contest.py", "contestant.py", "measure.py"):
            (benchmarks / name).symlink_to(ROOT / "tests" / "benchmarks" / name)
        for name in ("support", "services"):
            (other / "tests" / name).symlink_to(ROOT / "tests" / name)
        text = Path(__file__).read_text()
        (benchmarks / "test_contest.py").write_text(text.replace('side("ours")', 'side("theirs")'))
        for folder in (other / "tests", benchmarks):
            (folder / "__init__.py").touch()
        found, names, _ = contest(tmp_path, "limit", other)
        assert names[:-2] == ["prepare", *in_turns("ours", "theirs")]
        assert found.name == f"1,000 rows, vs {other}, seconds"
        assert found.goal == 1.1
