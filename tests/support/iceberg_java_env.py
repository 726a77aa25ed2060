"""The second environment of the repository: Spark 3.5 with Iceberg Java, in `.venv-java`, never beside Spark 4.

Tests start programs in it and talk to them through files; nothing of it is imported here.
"""

import os
from pathlib import Path

from tests.support.airflow_home import ROOT
from tests.support.java_classes import BRIEF, FROM_ARCHIVE


def python_of(environment: str, variable: str, name: str) -> Path:
    """Return the Python of an environment: the one that a variable names, else the one that make has made.

    Raises:
        FileNotFoundError: there is none; `make test` makes it.
    """
    python = Path(os.environ.get(variable) or ROOT / environment / "bin" / "python")
    if not python.exists():
        raise FileNotFoundError(f"no {name} environment at {python}; make it with: make {environment}/.stamp")
    return python


def java_python() -> Path:
    return python_of(".venv-java", "ICEBERG_JAVA_PYTHON", "Spark 3.5")


def java_environ() -> dict[str, str]:
    """Return the variables that a program of that environment runs with: its own Python and Java, on loopback."""
    environ = {name: value for name, value in os.environ.items() if name not in ("SPARK_HOME", "PYTHONPATH")}
    environ |= {"PYSPARK_PYTHON": str(java_python()), "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": str(ROOT)}
    if environ.get("SPARK_SUBMIT_OPTS") == FROM_ARCHIVE:  # which is that of Spark 4
        environ["SPARK_SUBMIT_OPTS"] = BRIEF
    if os.environ.get("ICEBERG_JAVA_HOME"):
        environ["JAVA_HOME"] = os.environ["ICEBERG_JAVA_HOME"]
    return environ
