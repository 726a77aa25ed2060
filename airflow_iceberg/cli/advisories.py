"""From which version on the packages that Airflow's constraints hold back have no known vulnerability.

The bounds of pyproject.toml say what works, so that this package can be installed with any supported Airflow and its
published constraints (docs/adr/0026). This table says what is safe; `airflow iceberg doctor` and
docs/tested-versions.md tell it. Of other packages the bounds themselves exclude what is vulnerable.
"""

from __future__ import annotations

import importlib.metadata
import re
from typing import NamedTuple


class Advisory(NamedTuple):
    """A known vulnerability that is the newest of a package.

    Attributes:
        last: the last version that has it.
        fixed: the first version without any that is known.
        what: what it is, and what earlier versions have besides.
    """

    last: str
    fixed: str
    what: str


ADVISORIES = {
    "apache-airflow": Advisory(
        "3.2.1",
        "3.2.2",
        "CVE-2026-45360 (code of a DAG in the scheduler), CVE-2026-45426 (logs of other DAGs), CVE-2026-48726 (tokens "
        "after a logout); before 3.2.0 CVE-2026-25917 (XCom runs code in the API server) and CVE-2026-32228; before "
        "3.1.8 CVE-2026-28779 (cookies for other applications) and CVE-2026-22922",
    ),
    "pyarrow": Advisory("23.0.0", "23.0.1", "CVE-2026-25087 (use after free in the reader of IPC files)"),
    "thrift": Advisory("0.22.0", "0.23.0", "CVE-2026-43869 (the host of a certificate is not checked)"),
    "aiohttp": Advisory(
        "3.13.3",
        "3.13.4",
        "CVE-2026-22815 (memory), CVE-2026-34516; before 3.13.3 CVE-2025-69223 to -69230 (bombs, smuggling)",
    ),
    "requests": Advisory("2.32.5", "2.33.0", "CVE-2026-25645 (a file with a name that others can guess)"),
    "urllib3": Advisory(
        "2.6.3", "2.7.0", "CVE-2026-44431 and CVE-2026-44432 (credentials over redirects, compressed bombs)"
    ),
}


def advice(package: str) -> str | None:
    """Return what to install instead of the installed version of a package, None if nothing is known against it."""
    known = ADVISORIES.get(package)
    if known is None or _numbers(importlib.metadata.version(package)) >= _numbers(known.fixed):
        return None
    return f"it has known vulnerabilities; install {known.fixed} or later"


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])
