import json
from pathlib import Path

from tests.benchmarks.measure import HEADER, Measurement, alternate, write_report

FASTER = Measurement(name="append, seconds", ours=1.5, peer=4.0, goal=0.5)


class TestReport:
    """A measurement is a line `name | ours | peer | ratio | goal`, and an object with these keys in bench.json."""

    def test_the_line_has_the_columns_of_the_header(self) -> None:
        cells = FASTER.line().split(" | ")
        assert len(cells) == len(HEADER.split(" | "))
        assert (cells[0], [float(cell) for cell in cells[1:]]) == ("append, seconds", [1.5, 4.0, 0.375, 0.5])

    def test_the_report_is_a_list_of_objects_with_exactly_these_keys(self, tmp_path: Path) -> None:
        write_report([FASTER], tmp_path / "build" / "bench.json")
        assert json.loads((tmp_path / "build" / "bench.json").read_text()) == [
            {"name": "append, seconds", "ours": 1.5, "peer": 4.0, "ratio": 0.375, "goal": 0.5}
        ]

    def test_a_goal_is_met_up_to_the_goal_itself(self) -> None:
        assert Measurement(name="a", ours=2.0, peer=4.0, goal=0.5).is_met
        assert not Measurement(name="a", ours=2.1, peer=4.0, goal=0.5).is_met


class TestRuns:
    """Contestants take turns; the warm-up does not count and the median does."""

    def test_the_median_without_the_warm_up(self) -> None:
        seconds = {"ours": iter([90.0, 1.0, 3.0, 2.0]), "peer": iter([0.0, 7.0, 5.0, 6.0])}
        turns: list[str] = []

        def run(name: str) -> float:
            turns.append(name)
            return next(seconds[name])

        found = alternate({name: lambda name=name: run(name) for name in seconds}, runs=3)
        assert found == {"ours": 2.0, "peer": 6.0}
        assert turns == ["ours", "peer"] * 4
