"""The programs of .ci, which are no package: each is loaded by its file."""

import importlib.util
from typing import Any

from tests.support.airflow_home import ROOT


def program(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, ROOT / ".ci" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
