import json
from pathlib import Path

from tests.benchmarks.__main__ import AREAS, _once, lines_of, selected
from tests.benchmarks.measure import HEADER, Measurement, Samples, write_report


def measured(ours: tuple[float, ...], peer: tuple[float, ...], goal: float = 0.5) -> Measurement:
    return Measurement(name="append, seconds", ours=Samples(values=ours), peer=Samples(values=peer), goal=goal)


FASTER = measured((1.5, 9.0, 1.25), (4.0,))


class TestReport:
    """A measurement is a line `name | ours | peer | ratio | goal | spread`, and an object of bench.json."""

    def test_the_line_has_the_columns_of_the_header(self) -> None:
        cells = FASTER.line().split(" | ")
        assert len(cells) == len(HEADER.split(" | "))
        assert cells == ["append, seconds", "1.500", "4.000", "0.375", "0.5", "1.250–9.000, 4.000–4.000"]

    def test_the_report_is_a_list_of_objects_with_exactly_these_keys(self, tmp_path: Path) -> None:
        write_report([FASTER], tmp_path / "build" / "bench.json")
        assert json.loads((tmp_path / "build" / "bench.json").read_text()) == [
            {
                "name": "append, seconds",
                "ours": 1.5,
                "peer": 4.0,
                "ratio": 0.375,
                "goal": 0.5,
                "runs": {
                    "ours": {"values": [1.5, 9.0, 1.25], "processor_seconds": [], "peak_mb": 0},
                    "peer": {"values": [4.0], "processor_seconds": [], "peak_mb": 0},
                },
            }
        ]

    def test_a_goal_is_met_up_to_the_goal_itself(self) -> None:
        assert measured((2.0,), (4.0,)).is_met
        assert not measured((2.1,), (4.0,)).is_met


class TestSelecting:
    """Lines and areas are selected by their names."""

    def test_names_are_those_of_one_line(self) -> None:
        names = [line.name for area in AREAS for line, _ in lines_of(area)]
        assert len(set(names)) == len(names)
        assert [line.name for line, _ in selected(())] == names

    def test_an_area_and_a_line(self) -> None:
        found = [line.name for line, _ in selected(("commit", "orphans"))]
        assert found == ["commit", "commit-pyiceberg", "orphans"]

    def test_what_our_side_does_twice_is_compared_once(self) -> None:
        assert [line.name for line, _ in _once(selected(("commit", "files", "files-bare")))] == ["commit", "files"]
