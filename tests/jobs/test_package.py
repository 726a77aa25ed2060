import os
import stat
import subprocess
import sys
import tempfile
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.jobs.spark import package
from airflow_iceberg.jobs.spark.package import build_zip, main_program, ship, zip_bytes
from tests.support.airflow_home import ROOT


class TestZip:
    """The core travels as one zip: the same sources give the same file, and nothing in it can commit."""

    def test_it_is_made_once(self, tmp_path):
        path = build_zip(tmp_path)
        before = path.stat()
        assert build_zip(tmp_path) == path
        assert path.stat().st_mtime_ns == before.st_mtime_ns

    def test_the_bytes_depend_on_the_sources_alone(self):
        assert zip_bytes() == zip_bytes()

    @pytest.mark.services
    def test_two_processes_may_make_it_at_once(self, tmp_path):
        with ThreadPoolExecutor(8) as pool:
            paths = set(pool.map(lambda _: build_zip(tmp_path / "new"), range(8)))
        assert [entry.name for entry in (tmp_path / "new").iterdir()] == [path.name for path in paths]

    @pytest.mark.costly
    @pytest.mark.parametrize("forged", [b"", b"import os", "shorter", "longer", "link"])
    def test_a_file_of_its_name_is_used_only_if_it_has_its_bytes(self, forged, tmp_path):
        """The name is known to everybody who has the package."""
        path, data = build_zip(tmp_path / "other"), zip_bytes()
        contents = {"shorter": data[:-1], "longer": data + b"x", "link": data}.get(forged, forged)
        name = tmp_path / "zip" / path.name
        name.parent.mkdir(mode=0o700)
        (tmp_path / "elsewhere").write_bytes(contents)
        if forged == "link":
            name.symlink_to(tmp_path / "elsewhere")
        else:
            name.write_bytes(contents)
        assert build_zip(name.parent) == name
        assert (name.read_bytes(), name.is_symlink()) == (data, False)
        assert (tmp_path / "elsewhere").read_bytes() == contents

    @pytest.mark.costly
    def test_a_folder_that_others_can_write_to_is_refused(self, tmp_path):
        for mode in (0o777, 0o1777, 0o770):
            (tmp_path / "shared").mkdir(exist_ok=True)
            (tmp_path / "shared").chmod(mode)
            with pytest.raises(InvalidInputError, match="shared is not a folder that only its owner"):
                build_zip(tmp_path / "shared")
        (tmp_path / "link").symlink_to(tmp_path)
        with pytest.raises(InvalidInputError, match="link is not a folder that only its owner"):
            build_zip(tmp_path / "link")

    @pytest.mark.costly
    def test_a_session_gets_one_from_a_folder_that_nobody_could_prepare(self, tmp_path, monkeypatch):
        """What earlier versions took from a folder with a known name, where another user may have put it first."""
        known = tmp_path / f"airflow-iceberg-{os.getuid()}"
        known.mkdir(mode=0o777)
        (known / build_zip(tmp_path / "other").name).write_bytes(b"forged")
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        package._folder_of.cache_clear()
        added = []
        ship(SimpleNamespace(sparkContext=SimpleNamespace(addPyFile=added.append)))
        ship(SimpleNamespace(sparkContext=SimpleNamespace(addPyFile=added.append)))
        path = Path(added[0])
        assert added == [str(path)] * 2
        assert path.read_bytes() == zip_bytes()
        assert path.parent != known
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        package._folder_of.cache_clear()

    @pytest.mark.costly
    def test_its_folder_is_removed_with_its_process(self, tmp_path):
        code = "import os, airflow_iceberg.jobs.spark.package as p; print(p.private_zip()); os.fork() or os._exit(0)"
        found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
        assert found.stdout.strip().endswith(".zip"), found.stderr
        assert not Path(found.stdout.split()[0]).parent.exists()

    def test_workers_of_another_user_can_read_it(self, tmp_path):
        assert build_zip(tmp_path).stat().st_mode & 0o444 == 0o444

    def test_it_holds_no_catalog_no_commit_and_no_airflow(self, tmp_path):
        names = zipfile.ZipFile(build_zip(tmp_path)).namelist()
        folders = {name.split("/")[1] for name in names}
        layers = {"redaction", "format", "expressions", "plan", "storage", "inventory", "data", "jobs"}
        assert folders == {"__init__.py", "errors.py", "py.typed", *layers}

    @pytest.mark.services
    def test_the_core_runs_out_of_it_alone(self, tmp_path):
        code = "from airflow_iceberg.jobs.spark import package, run; print(run.__file__, package.archive())"
        path = build_zip(tmp_path)
        environ = {**os.environ, "PYTHONPATH": str(path)}
        found = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environ, capture_output=True, text=True)
        assert found.stdout == f"{path}/airflow_iceberg/jobs/spark/run.py {path}\n", found.stderr

    def test_the_driver_program_says_what_is_missing(self, tmp_path):
        environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        command = [sys.executable, "-I", "-S", str(main_program()), "file:///plan.json", "0-" + 64 * "0"]
        found = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True)
        assert found.returncode == 2
        assert "cannot import airflow_iceberg" in found.stdout
        assert "pass its zip with --py-files" in found.stdout
        assert found.stderr == ""
