"""What `make dist` builds is complete, and `make test-airflow` knows the versions that it has to try.

The programs of .ci are run whole by make: they install from the registry. Here is what they decide.
"""

import subprocess
import sys
import zipfile
from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.support.airflow_home import ROOT
from tests.support.ci_programs import program

RELEASES = ["3.4.0rc1", "3.4.0", "3.3.2", "3.3.0", "3.2.2", "3.1.10", "3.1.8", "3.0.6", "2.11.2", "1.10.9-bin"]


class TestTheVersionsOfAirflow:
    """The newest release of each minor version from 3.1 on, also of those that nobody here knows yet."""

    @pytest.mark.parametrize(
        ("wanted", "expected"),
        [([], ["3.1.10", "3.2.2", "3.3.2", "3.4.0"]), (["3.1"], ["3.1.10"]), (["3.3.0", "3.2"], ["3.2.2", "3.3.0"])],
    )
    def test_chosen(self, wanted: list[str], expected: list[str]) -> None:
        assert program("airflow_versions").chosen(wanted, RELEASES) == expected

    def test_those_with_a_day_are_the_newest_that_were_known(self) -> None:
        days = program("airflow_versions").DAYS
        assert program("airflow_versions").chosen([], days) == list(days)


class TestTheTagOfARelease:
    """It is the version, and the changelog says on which day that was released."""

    @pytest.mark.parametrize(
        ("tag", "heading", "refusal"),
        [
            ("v0.1.0", "## 0.1.0 (2026-12-01)", None),
            ("v0.1.1", "## 0.1.0 (2026-12-01)", "the tag is v0.1.1, expected v0.1.0"),
            ("0.1.0", "## 0.1.0 (2026-12-01)", "the tag is 0.1.0, expected v0.1.0"),
            ("v0.1.0", "## 0.1.0 (unreleased)", r"begins with '## 0.1.0 \(unreleased\)'"),
            ("v0.1.0", "## 0.2.0 (2026-12-01)", r"begins with '## 0.2.0 \(2026-12-01\)'"),
            ("v0.1.0", "", "begins with ''"),
        ],
    )
    def test_a_wrong_one_is_refused(self, tmp_path: Path, tag: str, heading: str, refusal: str | None) -> None:
        (tmp_path / "airflow_iceberg").mkdir()
        (tmp_path / "airflow_iceberg" / "__init__.py").write_text('"""A package."""\n\n__version__ = "0.1.0"\n')
        (tmp_path / "CHANGELOG.md").write_text(f"# Changes\n\n{heading}\n\n## 0.0.9 (2026-01-01)\n" if heading else "")
        with nullcontext() if refusal is None else pytest.raises(SystemExit, match=refusal):
            program("distribution").check_tag(tag, tmp_path)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The wheel and the sdist, as an index would get them."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, sdist


class TestTheDistribution:
    """The wheel has all files of the package and no others; the sdist what a packager needs."""

    def test_it_is_complete(self, built: tuple[Path, Path]) -> None:
        program("distribution").check_contents(*built)

    @pytest.mark.parametrize("lacks", ["airflow_iceberg/py.typed", "airflow_iceberg/cli/doctor.py"])
    def test_what_is_missing_is_named(self, built: tuple[Path, Path], tmp_path: Path, lacks: str) -> None:
        wheel, sdist = built
        poorer = tmp_path / wheel.name
        with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(poorer, "w") as target:
            for name in source.namelist():
                if name != lacks:
                    target.writestr(name, source.read(name))
            target.writestr("tests/test_it.py", "")
        with pytest.raises(SystemExit, match=r"differ in \['airflow_iceberg/.*', 'tests/test_it.py'\]"):
            program("distribution").check_contents(poorer, sdist)
