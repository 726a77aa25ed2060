"""Files of one submission that only the worker's user can read: secrets that must not be on a command line.

A command line can be read by every user of the machine. Not here: the folder of these files, which no other user can
enter (`backends.spark_submit`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from airflow_iceberg.errors import InvalidInputError


def write_private(path: Path, data: bytes) -> Path:
    """Write a new file that only this user can read; a link in its place is an error."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
    return path


def write_settings(path: Path, settings: Mapping[str, str], *, base: Path | None) -> Path:
    """Write a properties file for spark-submit: the settings after those of the file that it takes the place of.

    Args:
        base: the properties file that spark-submit would read otherwise; None for none.
    """
    before = base.read_bytes() if base is not None else b""
    lines = [f"{_escaped(name)} {_escaped(value)}\n" for name, value in settings.items()]
    return write_private(path, before + b"\n" + "".join(lines).encode())


def default_settings(environment: Mapping[str, str]) -> Path | None:
    """Return the properties file that spark-submit reads if it is given none: `spark-defaults.conf`.

    Raises:
        InvalidInputError: it is unknown where the Spark of this machine is.
    """
    folder, home = environment.get("SPARK_CONF_DIR"), environment.get("SPARK_HOME")
    if not folder and not home:
        raise InvalidInputError(
            "the conf of spark_config holds secrets, which are not put on spark-submit's command line but into a copy "
            "of its spark-defaults.conf, and it is unknown where that is; set SPARK_HOME or SPARK_CONF_DIR"
        )
    path = Path(folder or f"{home}/conf") / "spark-defaults.conf"
    return path if path.is_file() else None


def _escaped(text: str) -> str:
    """Return a name or a value in the spelling of Java's properties, whose special characters need a backslash."""
    text = "".join(f"\\{sign}" if sign in "\\:=#! " else sign for sign in text)
    return text.replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
