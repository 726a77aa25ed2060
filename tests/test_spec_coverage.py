"""The page on the specification's headings names what is there, all of it, and nothing else."""

import ast
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "airflow_iceberg"
TESTS = ROOT / "tests"
PAGE = ROOT / "docs" / "spec-coverage.md"

STATES = ("done", "read only", "written only", "kept", "not yet", "no rule")
# States in which some rule is followed, by code that is tested.
FOLLOWED = ("done", "read only", "written only")

# The folders whose modules follow the specification, each named by a row of the page.
FOLDERS = ("format", "expressions", "plan")
# Their modules that follow no rule of the specification, and what they are for.
OF_OUR_OWN = {
    "format.values.literals": "values as people write them",
    "format.values.text": "values as people read them",
    "format.schemas.shorthand": "columns as people write them",
    "format.transforms.terms": "transforms as people write them",
    "format.decompression": "files that others made",
    "format.avro.record_columns": "manifests of Paimon",
    "format.properties.kinds": "table properties, which the specification leaves to engines",
    "format.properties.known": "table properties, which the specification leaves to engines",
    "format.properties.metrics_mode": "table properties, which the specification leaves to engines",
    "format.properties.property": "table properties, which the specification leaves to engines",
    "format.properties.table_properties": "table properties, which the specification leaves to engines",
    "format.arrow.paths": "fields of Arrow columns by their paths",
    "format.names": "names as engines read them",
    "expressions.assignments": "SQL",
    "expressions.json": "predicates on their way into a job",
    "expressions.literals": "literals of SQL",
    "expressions.merge_clauses": "clauses of a merge",
    "expressions.clause_names": "which columns a clause of a merge sees, and which it uses",
    "expressions.merge_sql": "clauses of a merge as people write them",
    "expressions.params": "values bound to placeholders of SQL",
    "expressions.queries.functions": "functions of SQL",
    "expressions.queries.grammar": "which queries are understood",
    "expressions.queries.names": "which columns a query names",
    "expressions.queries.rows": "which rows a query leaves out",
    "expressions.query": "what a query needs of its tables",
    "expressions.sql": "SQL",
    "plan.alter_table.words": "changes as people write them",
    "plan.changelog": "what snapshots have changed",
    "plan.compact": "which files are worth rewriting",
    **{
        f"plan.conditions.{name}": "sensors"
        for name in ("branch_published", "decision", "freshness", "partition", "row_count", "schema_change")
    },
    "plan.new_snapshot": "sensors",
    "plan.orphan_files": "files that no table knows",
    "plan.path_hashes": "sets of very many paths",
    "plan.snapshot_events": "events of a watcher",
    "plan.snapshot_range": "what snapshots have changed",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """A heading of the specification."""

    section: str
    heading: str
    modules: tuple[str, ...]
    tests: tuple[str, ...]
    state: str

    @property
    def word(self) -> str:
        """The state without what is said about it."""
        return re.split(r"[:,;]| for ", self.state)[0].strip()

    def __str__(self) -> str:
        return f"{self.section}: {self.heading}"


def quoted(cell: str) -> tuple[str, ...]:
    assert re.fullmatch(r"(`[^`\s]+`\s*)*", cell), f"expected names in backticks, got {cell!r}"
    return tuple(re.findall(r"`([^`]+)`", cell))


def read_page() -> list[Row]:
    """Return the rows of all tables with four columns."""
    rows, section = [], ""
    for line in PAGE.read_text().splitlines():
        section = line.removeprefix("## ") if line.startswith("## ") else section
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if line.startswith("|") and len(cells) == 4 and cells[0] not in ("heading", "---"):
            heading, modules, tests, state = cells
            rows.append(
                Row(section=section, heading=heading, modules=quoted(modules), tests=quoted(tests), state=state)
            )
    return rows


ROWS = read_page()
EVERY_ROW = pytest.mark.parametrize("row", ROWS, ids=str)


@cache
def names_in(file: Path) -> frozenset[str]:
    """Return what pytest collects of a file, as it writes them: `test_a`, `TestB`, `TestB::test_c`."""
    found = set()
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}::{item.name}" for item in node.body if isinstance(item, ast.FunctionDef)}
    return frozenset(name for name in found if re.match(r"(Test\w+::)?(test_|Test)", name))


def modules_of(folder: str) -> list[str]:
    paths = (path.relative_to(PACKAGE) for path in (PACKAGE / folder).rglob("*.py") if path.stem != "__init__")
    return sorted(".".join(path.with_suffix("").parts) for path in paths)


EVERY_MODULE = [module for folder in FOLDERS for module in modules_of(folder)]


class TestWhatIsNamedExists:
    """A reader who follows a name finds the code."""

    @EVERY_ROW
    def test_modules_and_tests(self, row: Row) -> None:
        for module in row.modules:
            assert (PACKAGE / f"{module.replace('.', '/')}.py").is_file(), f"{row} names the module {module}"
        for test in row.tests:
            path, _, name = test.partition("::")
            assert (TESTS / path).is_file(), f"{row} names the file {path}"
            assert not name or name in names_in(TESTS / path), f"{row} names {name}, which is not in {path}"


class TestStates:
    """A state is a word that the page explains, and agrees with what stands beside it."""

    @EVERY_ROW
    def test_it_is_allowed_and_agrees_with_the_row(self, row: Row) -> None:
        assert row.word in STATES, f"{row} is {row.state!r}"
        assert row.word not in FOLLOWED or (row.modules and row.tests), f"{row} is followed without code or tests"
        assert row.word != "no rule" or not (row.modules or row.tests), f"{row} has code for no rule"
        assert row.word != "not yet" or row.state != row.word, f"{row} does not say what happens instead"

    def test_the_page_explains_each_of_them(self) -> None:
        assert tuple(re.findall(r"^\| ([a-z ]+) \| (?!means)[^|]+ \|$", PAGE.read_text(), re.MULTILINE)) == STATES


class TestNothingIsForgotten:
    """Every module of the format has its heading, and every heading stands there once."""

    def test_both_specifications_are_there_and_each_heading_of_a_section_once(self) -> None:
        assert {"Scan Planning", "Equality Delete Files", "FileMetadata"} <= {row.heading for row in ROWS}
        assert len({(row.section, row.heading) for row in ROWS}) == len(ROWS)

    @pytest.mark.parametrize("module", EVERY_MODULE)
    def test_every_module(self, module: str) -> None:
        named = {name for row in ROWS for name in row.modules}
        assert (module in named) != (module in OF_OUR_OWN), (
            f"name {module} in docs/spec-coverage.md beside the heading whose rule it follows; "
            f"if it follows none, say in {Path(__file__).name} what it is for"
        )

    def test_no_exception_is_out_of_date(self) -> None:
        assert set(OF_OUR_OWN) <= set(EVERY_MODULE)
