"""Each name that the package imports of Airflow is there in every supported Airflow, with its oldest providers."""

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

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


def imported() -> Iterator[tuple[str, str]]:
    for path in sorted(Path(str(airflow_iceberg.__file__)).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.ImportFrom) and str(node.module).partition(".")[0] == "airflow":
                yield from ((str(node.module), alias.name) for alias in node.names)


NAMES = {f"{module}.{name}": (module, name) for module, name in imported()}
NEEDED = sorted(NAMES.keys() - DISPENSABLE)


def test_no_other_name_is_dispensable() -> None:
    assert NAMES.keys() >= DISPENSABLE


@pytest.mark.parametrize(("module", "name"), [NAMES[each] for each in NEEDED], ids=NEEDED)
def test_it_exists(module: str, name: str) -> None:
    if not hasattr(importlib.import_module(module), name):
        importlib.import_module(f"{module}.{name}")
