"""Which cases the mark `sample` leaves to other targets: always the same, and no value in all of them."""

import itertools
from types import SimpleNamespace

import pytest

from tests.support import sampling


def left_in(each, *lengths, tried=()):
    """Return the cases of a function with so many values for each of its parameters that get these marks, or none."""
    marks = [pytest.mark.parametrize(f"p{number}", range(length)) for number, length in enumerate(lengths)]
    left_out = sampling.LeftOut()

    def is_tried(case):
        item = SimpleNamespace(
            nodeid=f"tests/x.py::test_x[{case}]",
            callspec=SimpleNamespace(params={f"p{number}": value for number, value in enumerate(case)}),
            get_closest_marker=lambda name: pytest.mark.sample(each).mark if name == "sample" else None,
            iter_markers=lambda name: (mark.mark for mark in marks),
        )
        return left_out.marks_of(item) == tried

    return list(filter(is_tried, itertools.product(*map(range, lengths))))


@pytest.mark.parametrize(("each", "lengths"), [(2, (4, 3)), (3, (9, 15)), (4, (7, 5, 2)), (6, (13, 2, 2, 8))])
def test_every_value_is_tried_and_about_one_case_in_so_many(each, lengths):
    cases = left_in(each, *lengths)
    for number, length in enumerate(lengths):
        assert {case[number] for case in cases} == set(range(length))
    count = len(list(itertools.product(*map(range, lengths))))
    assert count // each - each <= len(cases) <= count // each + each
    assert cases == left_in(each, *lengths)
    others = left_in(each, *lengths, tried=("services",))
    assert abs(len(others) - len(cases)) <= each
    assert len(cases) + len(others) + len(left_in(each, *lengths, tried=("services", "long"))) == count


def test_of_tests_that_need_services_one_in_so_many_runs_with_those():
    marks = [pytest.mark.parametrize("p", range(8))]
    left_out = sampling.LeftOut()

    def marks_of(case):
        item = SimpleNamespace(
            nodeid=f"tests/x.py::test_x[{case}]",
            callspec=SimpleNamespace(params={"p": case}),
            get_closest_marker={"sample": pytest.mark.sample(4).mark, "services": pytest.mark.services.mark}.get,
            iter_markers=lambda name: (mark.mark for mark in marks),
        )
        return left_out.marks_of(item)

    assert sorted(map(marks_of, range(8))) == [()] * 2 + [("services", "long")] * 6
