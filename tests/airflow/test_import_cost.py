"""A DAG file is parsed every few seconds: what it imports from here has to be light."""

import json
import subprocess
import sys

import pytest

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


@pytest.mark.parametrize("module", MODULES)
def test_importing_a_module_of_the_airflow_layer_pulls_in_nothing_heavy(module, imports):
    seconds, brought = imports[module]
    print(f"{module}: {seconds * 1000:.0f} ms on top of airflow.sdk, {len(brought)} modules")
    assert module in brought
    assert HEAVY & {name.partition(".")[0] for name in brought} == set()
    assert not any(name.startswith("airflow.providers.apache.spark") for name in brought)
