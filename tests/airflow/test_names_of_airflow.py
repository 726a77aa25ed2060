"""Each name that the package imports of Airflow is there in every supported Airflow, with its oldest providers."""

import ast
import importlib
from pathlib import Path

import airflow_iceberg

# What some Airflow does not have, where the code does without.
DISPENSABLE = {
    "airflow.providers.common.compat.sdk.determine_kwargs",
    "airflow.sdk.definitions.retry_policy.RetryDecision",
    "airflow.sdk.definitions.retry_policy.RetryPolicy",
    "airflow.sdk.log.amask_secret",
    "airflow.sdk.types.TaskInstanceKey",  # for annotations alone
    "airflow.triggers.shared_stream.SharedStreamProducer",
    "airflow.utils.operator_helpers.determine_kwargs",  # where the first of these is missing
}


def imported() -> set[tuple[str, str]]:
    """Return the modules and names that the package imports of Airflow."""
    return {
        (str(node.module), alias.name)
        for path in Path(str(airflow_iceberg.__file__)).parent.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(node, ast.ImportFrom) and str(node.module).partition(".")[0] == "airflow"
        for alias in node.names
    }


def exists(module: str, name: str) -> bool:
    try:
        return hasattr(importlib.import_module(module), name) or bool(importlib.import_module(f"{module}.{name}"))
    except ImportError:
        return False


def test_each_exists_that_is_needed() -> None:
    names = {f"{module}.{name}": exists(module, name) for module, name in imported()}
    assert names.keys() >= DISPENSABLE
    assert sorted(name for name, found in names.items() if not found and name not in DISPENSABLE) == []
