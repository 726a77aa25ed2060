"""A DAG file is parsed every few seconds: what it imports from here has to be light."""

import json
import subprocess
import sys

import pytest

from tests.support.airflow_home import EXAMPLES, ROOT
from tests.support.airflow_versions import needs_partitions

# `hooks.task_table` is none of them: it is imported in a task, by the hook's method.
MODULES = (
    "airflow_iceberg.hooks.iceberg",
    "airflow_iceberg.operators.create_table",
    "airflow_iceberg.operators._rows",
    "airflow_iceberg.hooks.paimon",
    "airflow_iceberg.sensors.paimon",
    "airflow_iceberg.triggers.paimon",
    "airflow_iceberg.sensors.iceberg",
    "airflow_iceberg.backends.spark_submit",
    "airflow_iceberg.triggers.iceberg",
    "airflow_iceberg.triggers.watcher",
    "airflow_iceberg.triggers.conditions",
    "airflow_iceberg.triggers.job",
    "airflow_iceberg.sensors.conditions",
    "airflow_iceberg.events",
    "airflow_iceberg.assets",
    "airflow_iceberg.links",
    "airflow_iceberg.lineage",
    "airflow_iceberg.operators",
    "airflow_iceberg.ui.plugin",
    "airflow_iceberg.decorators.iceberg",
)
HEAVY = {"pyarrow", "pyspark", "numpy", "pandas", "fastavro", "fsspec", "sqlglot", "sqlalchemy", "requests"}

# Each module in a child of its own, forked from a process that has imported Airflow's SDK and nothing else.
PROBE = """
import importlib, json, os, sys, time
import airflow.sdk
from airflow.sdk import BaseHook, BaseOperator, BaseSensorOperator
for module in sys.argv[1:]:
    if os.fork() == 0:
        before, started = set(sys.modules), time.perf_counter()
        importlib.import_module(module)
        seconds = time.perf_counter() - started
        print(json.dumps([module, seconds, sorted(set(sys.modules) - before)]), flush=True)
        os._exit(0)
    os.wait()
"""


@pytest.fixture(scope="module")
def imports() -> dict[str, tuple[float, list[str]]]:
    """What importing each module costs on top of `airflow.sdk`: seconds, and the modules it brings."""
    done = subprocess.run([sys.executable, "-c", PROBE, *MODULES], capture_output=True, text=True, check=True)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    return {module: (seconds, brought) for module, seconds, brought in lines}


def test_every_name_of_the_operators_is_imported_from_one_place():
    from airflow_iceberg import operators

    for name in operators.__all__:
        assert getattr(operators, name).__name__ == name
    with pytest.raises(ImportError, match="cannot import name 'IcebergNoOperator'"):
        from airflow_iceberg.operators import IcebergNoOperator  # type: ignore[attr-defined]  # noqa: F401


@pytest.mark.costly
@pytest.mark.parametrize("module", MODULES)
def test_importing_a_module_of_the_airflow_layer_pulls_in_nothing_heavy(module, imports):
    seconds, brought = imports[module]
    print(f"{module}: {seconds * 1000:.0f} ms on top of airflow.sdk, {len(brought)} modules")
    assert module in brought
    assert HEAVY & {name.partition(".")[0] for name in brought} == set()
    assert not any(name.startswith("airflow.providers.apache.spark") for name in brought)


# Imported by a task or a command that runs, and by nothing that a DAG file imports.
IN_A_TASK = {f"airflow_iceberg.hooks.{name}" for name in ("task_table", "own_changes", "diagnosis")}

# Everything that a DAG file can import, and all examples; what is opened meanwhile, but for modules, is written down.
PARSE = """
import importlib, importlib.util, json, sys
import airflow.sdk, airflow.providers.standard.operators.hitl, croniter
from airflow.sdk import BaseHook, BaseOperator, BaseSensorOperator, PartitionedAssetTimetable, TaskGroup, dag, task
names, examples = json.loads(sys.argv[1])
watched, seen = False, []
BESIDES = ("open", "socket.connect", "socket.getaddrinfo", "subprocess.Popen")
def look(event, args):
    is_code = event == "open" and str(args[0]).endswith((".py", ".pyc", ".so"))
    if watched and event in BESIDES and not is_code:
        seen.append([event, str(args[0])])
sys.addaudithook(look)
before = set(sys.modules)
watched = True
for name in names:
    importlib.import_module(name)
brought = sorted(set(sys.modules) - before)
for path in examples:
    spec = importlib.util.spec_from_file_location(path.rpartition("/")[2][:-3], path)
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
watched = False
print(json.dumps([brought, seen]))
"""


def layer() -> list[str]:
    """Return all modules that a DAG file may import, directly or by others."""
    package = ROOT / "airflow_iceberg"
    folders = ("operators", "sensors", "triggers", "decorators", "hooks")
    paths = [*(path for one in folders for path in (package / one).rglob("*.py"))]
    paths += [package / f"{one}.py" for one in ("assets", "events", "lineage", "links", "retries", "get_provider_info")]
    names = {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for path in paths}
    return sorted(names - IN_A_TASK)


@pytest.mark.costly
@needs_partitions
def test_all_modules_and_examples_are_parsed_without_a_connection_and_a_file():
    """Of the many modules of the layer none is forgotten, as a list could; nothing heavy is brought by any of them."""
    # The plugin is read by Airflow, and no DAG file has a reason to import it.
    assert set(MODULES) - set(layer()) == {"airflow_iceberg.backends.spark_submit", "airflow_iceberg.ui.plugin"}
    examples = [str(path) for path in sorted(EXAMPLES.glob("*.py")) if path.name != "demo.py"]
    command = [sys.executable, "-B", "-c", PARSE, json.dumps([layer(), examples])]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    brought, seen = json.loads(done.stdout.splitlines()[-1])
    assert set(layer()) - set(brought) == {"airflow_iceberg.get_provider_info"}  # Airflow has read it before
    assert HEAVY & {name.partition(".")[0] for name in brought} == set()
    assert seen == []
