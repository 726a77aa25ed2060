"""The documentation says what is there: every operator, every link, every command, every example."""

import ast
import importlib
import inspect
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import BaseSensorOperator

from airflow_iceberg import operators, sensors

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
EXAMPLES = ROOT / "dags_examples"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])

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


def users_classes() -> set[str]:
    """Return the operators and sensors that a DAG author may use: those that have the name of a table format."""
    names = set()
    for folder in ("operators", "sensors"):
        for path in (ROOT / "airflow_iceberg" / folder).rglob("*.py"):
            names |= {node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef)}
    return {name for name in names if re.fullmatch(r"(Iceberg|Paimon)\w+(Operator|Sensor)", name)}


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
