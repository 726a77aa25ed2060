"""What `make dist` builds is complete, and `make test-airflow` knows the versions that it has to try.

The programs of .ci are run whole by make: they install from the registry. Here is what they decide.
"""

import importlib.util
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.support.airflow_home import ROOT

RELEASES = ["3.4.0rc1", "3.4.0", "3.3.2", "3.3.0", "3.2.2", "3.1.10", "3.1.8", "3.0.6", "2.11.2", "1.10.9-bin"]


def program(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, ROOT / ".ci" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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
