"""The documentation says what is there: every operator, every link, every command, every example."""

import ast
import importlib
import inspect
import re
import subprocess
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import BaseSensorOperator, Connection

from airflow_iceberg import operators, sensors
from airflow_iceberg.decorators.iceberg import append_task, merge_task, overwrite_task
from airflow_iceberg.events import TableEvent
from airflow_iceberg.get_provider_info import get_provider_info
from airflow_iceberg.hooks import IcebergHook, PaimonHook
from airflow_iceberg.hooks.connection import CatalogConfig
from airflow_iceberg.hooks.task_table import TaskTable
from airflow_iceberg.table import Table

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
EXAMPLES = ROOT / "dags_examples"
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / ".github").glob("*.md"), *DOCS.rglob("*.md")])

LINK = re.compile(r"(?<!\!)\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ +(.*)$", re.MULTILINE)


def page_id(path: Path) -> str:
    return str(path.relative_to(ROOT))


def without_code(text: str) -> str:
    return FENCE.sub("", text)


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as the site and code hosts make them."""
    titles = HEADING.findall(without_code(page.read_text()))
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


@cache
def users_classes() -> frozenset[str]:
    """Return the operators and sensors that a DAG author may use: those that have the name of a table format."""
    names = set()
    for folder in ("operators", "sensors"):
        for path in (ROOT / "airflow_iceberg" / folder).rglob("*.py"):
            names |= {node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef)}
    return frozenset(name for name in names if re.fullmatch(r"(Iceberg|Paimon)\w+(Operator|Sensor)", name))


def users_class(name: str) -> Any:
    """Return an operator or sensor by the name by which a DAG file imports it."""
    package = sensors if name.endswith("Sensor") else operators
    assert name in package.__all__
    return getattr(package, name)


# Why no example shows them.
WITHOUT_EXAMPLE = {
    "IcebergPublishOperator": "a task of `iceberg_wap`, which an example shows",
    "IcebergPublishChangesOperator": "it needs a commit that Iceberg Java has staged",
}


class TestWhatADagAuthorUsesIsShown:
    """Every operator and sensor is in the documentation and in an example that runs."""

    def test_there_are_some(self) -> None:
        assert {"IcebergAppendOperator", "IcebergTagOperator", "IcebergSnapshotSensor"} <= users_classes()

    @pytest.mark.parametrize("name", sorted(users_classes()))
    def test_in_the_reference_a_how_to_and_an_example(self, name: str) -> None:
        assert re.search(rf"^::: airflow_iceberg\.[\w.]+\.{name}$", (DOCS / "reference.md").read_text(), re.MULTILINE)
        assert any(name in page.read_text() for page in (DOCS / "how-to").glob("*.md"))
        assert users_class(name).__name__ == name
        examples = [path.read_text() for path in EXAMPLES.glob("*.py")]
        assert any(f"{name}(" in text or f"{name}." in text for text in examples) is (name not in WITHOUT_EXAMPLE)


class TestTheExamplesAreListed:
    """The page of the example DAGs has a line for each, which leads to a how-to that has its operators."""

    LINE = re.compile(
        r"^\| `dags_examples/(\w+)\.py` \| [^|]+ \| \[[^|]+\]\((how-to/[\w-]+\.md)[^|]*\) \|$", re.MULTILINE
    )

    def test_each_once_with_a_how_to_about_it(self) -> None:
        listed = self.LINE.findall((DOCS / "examples.md").read_text())
        assert sorted(name for name, _ in listed) == sorted({path.stem for path in EXAMPLES.glob("*.py")} - {"demo"})
        for name, page in listed:
            used = re.findall(
                r"(?:Iceberg|Paimon)\w+(?=[(.])|iceberg_\w+(?=\()|task_table", (EXAMPLES / f"{name}.py").read_text()
            )
            text = (DOCS / page).read_text()
            assert any(word in text for word in used), f"{name} has nothing of {page}"

    @pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=page_id)
    def test_what_its_first_lines_say_that_it_shows_is_in_it(self, path: Path) -> None:
        described, _, code = path.read_text().partition('"""\n\nfrom')
        for name in re.findall(r"`(?:@task\.)?(Iceberg\w+|Paimon\w+|iceberg_(?!catalog_default)\w+)", described):
            assert name in code, f"{path.name} says that it shows {name}"


@pytest.mark.parametrize("page", PAGES, ids=page_id)
class TestLinksLeadSomewhere:
    """A link inside the repository leads to a file, and to a heading of it when it names one."""

    def test_every_link_of_the_page(self, page: Path) -> None:
        for target in LINK.findall(without_code(page.read_text())):
            if re.match(r"[a-z]+://", target):
                continue
            path, _, anchor = target.partition("#")
            file = (page.parent / path).resolve() if path else page
            assert file.exists(), f"{page_id(page)} links to {target}"
            assert not anchor or anchor in anchors(file), f"{page_id(page)} links to {target}: no such heading"


class TestCommandsExist:
    """What a page tells to type can be typed."""

    def targets(self) -> set[str]:
        return set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))

    @pytest.mark.parametrize("page", PAGES, ids=page_id)
    def test_every_make_target_and_every_file_that_is_named(self, page: Path) -> None:
        text = page.read_text()
        assert set(re.findall(r"(?:`|^|\n)make ([a-z][a-z-]*)", text)) <= self.targets()
        for name in re.findall(r"\b((?:dags_examples|tests|airflow_iceberg)/[\w/]+\.py)\b", text):
            assert (ROOT / name).exists(), f"{page_id(page)} names {name}"

    def test_make_help_lists_all_of_them(self) -> None:
        listed = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        assert set(re.findall(r"^  make ([a-z-]+)", listed, re.MULTILINE)) == self.targets()


def python_blocks() -> list[tuple[str, str]]:
    return [
        (f"{page_id(page)}:{number}", code)
        for page in PAGES
        for number, (language, code) in enumerate(FENCE.findall(page.read_text()))
        if language == "python"
    ]


class TestCodeInPagesIsRight:
    """Code in a page is Python, imports what exists, and calls our classes with arguments that they have."""

    @pytest.mark.parametrize("code", [pytest.param(code, id=name) for name, code in python_blocks()])
    def test_it_parses_its_imports_work_and_our_operators_know_the_arguments(self, code: str) -> None:
        for node in ast.walk(ast.parse(code.replace("…", "..."))):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("airflow_iceberg"):
                module = importlib.import_module(str(node.module))
                for alias in node.names:
                    assert hasattr(module, alias.name), f"from {node.module} import {alias.name}"
            if isinstance(node, ast.Call) and ast.unparse(node.func) in users_classes():
                accepted = self.arguments(ast.unparse(node.func))
                assert {str(keyword.arg) for keyword in node.keywords} <= accepted

    def arguments(self, name: str) -> set[str]:
        ours = [base for base in users_class(name).__mro__ if base.__module__.startswith("airflow_iceberg")]
        known = [inspect.signature(base.__init__).parameters for base in (*ours, BaseSensorOperator)]
        return {"task_id", "outlets", *(name for parameters in known for name in parameters)}


# Arguments that are SQL, and methods of a table whose first argument is.
SQL_ARGUMENTS = {"predicate", "overwrite_filter", "where", "row_filter", "sql", "on", "clauses", "set"}
SQL_METHODS = {"scan", "delete", "update"}
IN_TEXT = re.compile(rf"\b({'|'.join(SQL_ARGUMENTS)})=(f?)(\"[^\"\n]*\"|'[^'\n]*')")


def made_sql(code: ast.AST) -> list[str]:
    """Return the predicates and queries in code that are not written out: other values in them become SQL."""
    found = []
    for node in ast.walk(code):
        if not isinstance(node, ast.Call):
            continue
        given = [keyword.value for keyword in node.keywords if keyword.arg in SQL_ARGUMENTS]
        if isinstance(node.func, ast.Attribute) and node.func.attr in SQL_METHODS:
            given += node.args[:1]
        parts = [value.elts if isinstance(value, ast.List) else [value] for value in given]
        parts += [value.values for value in given if isinstance(value, ast.Dict)]
        for value in (part for each in parts for part in each if not isinstance(part, ast.Dict)):
            is_text = isinstance(value, ast.Constant) and not re.search(r"{{|{%|%\(|%s", str(value.value))
            if not is_text and not isinstance(value, ast.Attribute):
                found.append(ast.unparse(value))
    return found


class TestNoValueIsWrittenIntoSql:
    """Predicates and queries of the documentation are plain texts; their values are bound to placeholders."""

    @pytest.mark.parametrize("code", [pytest.param(code, id=name) for name, code in python_blocks()])
    def test_in_the_code_of_a_page(self, code: str) -> None:
        assert made_sql(ast.parse(code.replace("…", "..."))) == []

    @pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=page_id)
    def test_in_an_example(self, path: Path) -> None:
        assert made_sql(ast.parse(path.read_text())) == []

    @pytest.mark.parametrize(
        "path", [*PAGES, *EXAMPLES.glob("*.py"), *(ROOT / "airflow_iceberg").rglob("*.py")], ids=page_id
    )
    def test_in_a_sentence_or_docstring(self, path: Path) -> None:
        for argument, is_f, text in IN_TEXT.findall(path.read_text()):
            is_made = "{{" in text or (is_f and path.suffix == ".md")
            assert not is_made, f"{page_id(path)}: {argument}={is_f}{text}"

    @pytest.mark.parametrize("code", [
        "Delete(predicate='id = {{ params.id }}')", "Compact(where=f'id = {x}')", "table.scan(row_filter=''.join(x))",
        "Delete(predicate='id = ' + x)", "table.scan('id = {}'.format(x))", "table.delete(f'id = {x}')",
        "Append(sql='select * from t where day = {{ ds }}')", "Delete(predicate='{% if x %}id = 1{% endif %}')",
        "Overwrite(overwrite_filter='%s' % x)", "read(row_filter=x)", "Delete(predicate='id = %(x)s')",
    ])  # fmt: skip
    def test_it_would_be_found(self, code: str) -> None:
        assert len(made_sql(ast.parse(code))) == 1


class TestThePropertiesThatAreNamedAreRead:
    """A table property in a how-to is one that the code knows."""

    def test_every_write_and_commit_property(self) -> None:
        code = "".join(path.read_text() for path in (ROOT / "airflow_iceberg").rglob("*.py"))
        text = (DOCS / "how-to" / "load-a-table.md").read_text()
        for name in re.findall(r"`((?:write|commit)\.[a-z.\-]+?)(?:\.?\*)?`", text):
            assert f'"{name}' in code, name


def offered() -> list[Any]:
    """Return everything that a DAG file may import from the packages of the Airflow layer."""
    packages = [
        importlib.import_module(f"airflow_iceberg.{name}") for name in ("operators", "sensors", "triggers", "hooks")
    ]
    return [getattr(package, name) for package in packages for name in package.__all__]


def hooks_and_tables() -> list[Any]:
    """Return the classes whose methods a task's function calls."""
    return [IcebergHook, PaimonHook, TaskTable, Table]


def documented(kind: Any) -> set[str]:
    """Return the arguments that the docstring of a class or function describes; some share a line."""
    text = inspect.getdoc(kind) or ""
    _, _, section = text.partition("\nArgs:\n")
    _, _, attributes = text.partition("\nAttributes:\n")
    lines = re.findall(r"^    (\*{0,2}\w+(?:, \*{0,2}\w+)*):", f"{section}\n{attributes}", re.MULTILINE)
    return {name.strip("* ") for line in lines for name in line.split(",")}


def arguments(kind: Any) -> set[str]:
    """Return the arguments of a class itself and of those of ours above it."""
    ours = [one for one in getattr(kind, "__mro__", [kind]) if one.__module__.startswith("airflow_iceberg")]
    found: set[str] = set()
    for one in ours:
        made = vars(one).get("__init__") if inspect.isclass(one) else one
        parameters = inspect.signature(made).parameters.values() if made else ()
        found |= {each.name for each in parameters if each.kind not in (each.VAR_KEYWORD, each.VAR_POSITIONAL)}
    return found - {"self"}


class TestTheReferenceIsComplete:
    """Everything that a DAG file may import is in the reference, which is made of docstrings, with every argument."""

    @pytest.mark.parametrize("kind", offered(), ids=lambda kind: kind.__name__)
    def test_with_every_argument(self, kind: Any) -> None:
        reference = (DOCS / "reference.md").read_text()
        assert re.search(rf"^::: airflow_iceberg\.[\w.]+\.{kind.__name__}$", reference, re.MULTILINE)
        once = set(re.findall(r"^\| `(\w+)` \| (?:all operators|operators with jobs) \|", reference, re.MULTILINE))
        assert once == {"asset_events", "partition_keys", "poll_interval"}
        assert arguments(kind) - documented(kind) - once == set()

    @pytest.mark.parametrize("kind", [*hooks_and_tables(), TableEvent], ids=lambda kind: kind.__name__)
    def test_with_every_argument_of_what_is_called(self, kind: Any) -> None:
        called = {name: getattr(kind, name) for name in vars(kind) if not name.startswith("_")}
        functions = {name: made for name, made in called.items() if inspect.ismethod(made) or inspect.isfunction(made)}
        lacking = {name: arguments(made) - {"cls"} - documented(made) for name, made in functions.items()}
        assert {name: found for name, found in lacking.items() if found} == {}
        assert not is_dataclass(kind) or {one.name for one in fields(kind)} <= documented(kind)

    @pytest.mark.parametrize("made", [append_task, overwrite_task, merge_task], ids=lambda made: made.__name__)
    def test_with_every_argument_of_a_decorator(self, made: Any) -> None:
        assert arguments(made) <= documented(made)


# https://iceberg.apache.org/docs/latest/spark-procedures/
PROCEDURES = (
    *("rollback_to_snapshot", "rollback_to_timestamp", "set_current_snapshot", "cherrypick_snapshot"),
    *("publish_changes", "fast_forward", "expire_snapshots", "remove_orphan_files"),
    *("rewrite_data_files", "rewrite_manifests", "rewrite_position_delete_files", "snapshot"),
    *("migrate", "add_files", "register_table", "ancestors_of"),
    *("create_changelog_view", "compute_table_stats", "compute_partition_stats", "rewrite_table_path"),
)


@pytest.mark.parametrize("name", PROCEDURES)
def test_each_procedure_of_iceberg_has_an_operator_or_is_said_to_have_none(name: str) -> None:
    rows = [row.split(" | ") for row in (DOCS / "migrate-from-procedures.md").read_text().splitlines()]
    (answer,) = [row[1] for row in rows if len(row) > 2 and f"`{name}`" in row[0]]
    named = set(re.findall(r"Iceberg\w+Operator", answer))
    assert named <= users_classes()
    assert named or answer == "none" or "airflow iceberg" in answer or "Changes(" in answer


CATALOGS = {
    "hadoop": "hadoop-catalog",
    "sql": "sql-catalog",
    "rest": "rest-catalog",
    "hive": "hive-metastore",
    "nessie": "nessie",
    "glue": "glue",
}


class TestEachCatalogHasAPage:
    """With a connection as JSON, which the hook reads, and as a form, whose fields there are."""

    def form(self) -> dict[str, Any]:
        return get_provider_info()["connection-types"][0]

    def test_every_type_of_the_form_has_one(self) -> None:
        assert set(self.form()["conn-fields"]["type"]["schema"]["enum"]) - {None, ""} == set(CATALOGS)

    @pytest.mark.parametrize(("kind", "page"), CATALOGS.items())
    def test_the_connection(self, kind: str, page: str) -> None:
        text = (DOCS / f"{page}.md").read_text()
        given = re.search(r"export AIRFLOW_CONN_ICEBERG_CATALOG_DEFAULT='(.*?)'", text, re.DOTALL)
        assert given is not None
        connection = Connection.from_json(given[1], conn_id="lake")
        assert CatalogConfig.from_connection(connection).properties["type"] == kind
        _, _, table = text.partition("In the form of a connection:")
        rows = re.findall(r"^\| ([^|]+) \| [^|]+ \|$", table.partition("\n\n|")[2].partition("\n\n")[0], re.MULTILINE)
        named = {name.strip() for row in rows[1:] for name in row.split(",")} - {"---"}
        labels = {field["label"] for field in self.form()["conn-fields"].values()}
        labels |= set(self.form()["ui-field-behaviour"]["relabeling"].values()) | {"Connection Type"}
        assert {"Connection Type", "Catalog type"} <= named <= labels


class TestTestedVersions:
    """The page names what the tests use, and each version of an engine that `make test-versions` has run."""

    PAGE = (DOCS / "tested-versions.md").read_text()

    @pytest.mark.parametrize(("package", "row"), [("duckdb", "| DuckDB | {} |"), ("pyspark", "| Spark {}, Java")])
    def test_the_pins_of_the_tests_are_in_the_table(self, package, row):
        pins = set(re.findall(rf'"{package}==([\d.]+)"', (ROOT / "pyproject.toml").read_text()))
        assert pins
        assert [pin for pin in sorted(pins) if row.format(pin) not in self.PAGE] == []

    @pytest.mark.parametrize(
        ("engine", "versions"),
        [("DuckDB", ["1.5", "2.0"]), ("Spark", ["3.5", "4.0", "4.1", "4.2", "4.3"])],
    )
    def test_a_row_says_what_was_run_when_and_how_it_ended(self, engine, versions):
        section = self.PAGE.partition(f"\n## {engine}\n")[2].partition("\n## ")[0]
        rows = re.findall(r"^\| (\d+\.\d+)\.\d+ \| \d{4}-\d\d-\d\d \| [^|]+ \| [^|]+ \|$", section, re.MULTILINE)
        assert rows == versions
