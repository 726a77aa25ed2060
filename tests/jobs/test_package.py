import os
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor

from airflow_iceberg.jobs.spark.package import build_zip, main_program, zip_bytes


class TestZip:
    """The core travels as one zip: the same sources give the same file, and nothing in it can commit."""

    def test_it_is_made_once(self, tmp_path):
        path = build_zip(tmp_path)
        before = path.stat()
        assert build_zip(tmp_path) == path
        assert path.stat().st_mtime_ns == before.st_mtime_ns

    def test_the_bytes_depend_on_the_sources_alone(self):
        assert zip_bytes() == zip_bytes()

    def test_two_processes_may_make_it_at_once(self, tmp_path):
        with ThreadPoolExecutor(8) as pool:
            paths = set(pool.map(lambda _: build_zip(tmp_path / "new"), range(8)))
        assert [entry.name for entry in (tmp_path / "new").iterdir()] == [path.name for path in paths]

    def test_workers_of_another_user_can_read_it(self, tmp_path):
        assert build_zip(tmp_path).stat().st_mode & 0o444 == 0o444

    def test_it_holds_no_catalog_no_commit_and_no_airflow(self, tmp_path):
        names = zipfile.ZipFile(build_zip(tmp_path)).namelist()
        folders = {name.split("/")[1] for name in names}
        layers = {"format", "expressions", "plan", "storage", "inventory", "data", "jobs"}
        assert folders == {"__init__.py", "errors.py", "redaction.py", "py.typed", *layers}

    def test_the_core_runs_out_of_it_alone(self, tmp_path):
        code = "import airflow_iceberg.jobs.spark.run as spark; print(spark.__file__, spark.package.archive())"
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
