"""The first two lines of a failed task's log, and the table of them in the documentation."""

import re
from pathlib import Path

from airflow_iceberg.errors import IcebergError
from airflow_iceberg.retries import advice, is_final

PAGE = Path(__file__).parents[2] / "docs" / "errors.md"
HEADING = "## On call: the first two lines of a failed task"
# What is different in each run: folders, ports, ids.
_VARYING = (
    (r"file:///\S*?/(?=[\w.-]+[\s;:,]|[\w.-]+$)", "file:///…/"),
    (r"(?<![\w.…:/])/(?:[\w.+-]+/)+", "…/"),
    (r"(127\.0\.0\.1|localhost):\d+", r"\1:…"),
    (r"\b[0-9a-f]{8}-[0-9a-f-]{27}\b", "…"),
    (r"\b\d{9,}\b", "…"),
    (r"\b\d+\.\d+ s\b", "… s"),
)


def rows() -> dict[str, tuple[str, str, str]]:
    """Return the table of the page: what happened, what to do, and whether it is tried again, by failure."""
    text = PAGE.read_text().partition(HEADING)[2].partition("\n## ")[0]
    lines = [line.strip().strip("|").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return {line[0].strip(): (line[1].strip(), line[2].strip(), line[3].strip()) for line in lines[2:]}


def row_of(happened: str, to_do: str, *, is_retried: bool) -> tuple[str, str, str]:
    """Return the row of two lines, without what is different in each run."""
    for pattern, text in _VARYING:
        happened, to_do = re.sub(pattern, text, happened), re.sub(pattern, text, to_do)
    return f"`{happened.replace('|', '/')}`", to_do, "yes" if is_retried else "no"


def check_row(failure: str, happened: str, to_do: str, *, is_retried: bool) -> None:
    """Hold two lines against the page."""
    made = row_of(happened, to_do, is_retried=is_retried)
    assert rows().get(failure) == made, f"expected in {PAGE.name}:\n| {failure} | {' | '.join(made)} |"


def check_error(failure: str, error: IcebergError) -> None:
    """Hold the two lines that tell of an error against the page."""
    check_row(failure, error.what_happened, advice(error), is_retried=not is_final(error))
