"""What a Python worker does between two tasks."""

import gc
import importlib
import sys
import zipfile
from zipimport import zipimporter

import pytest

from airflow_iceberg.jobs.spark.worker import spare_next_task


@pytest.fixture
def modules(tmp_path, monkeypatch):
    with zipfile.ZipFile(tmp_path / "code.zip", "w") as archive:
        for name in ("zipped_first", "zipped_second"):
            archive.writestr(f"{name}.py", f"NAME = '{name}'\n")
    monkeypatch.syspath_prepend(tmp_path / "code.zip")
    yield
    gc.unfreeze()
    for name in ("zipped_first", "zipped_second"):
        sys.modules.pop(name, None)


def zips() -> list[str]:
    return [path for path, finder in sys.path_importer_cache.items() if isinstance(finder, zipimporter)]


@pytest.mark.usefixtures("modules")
class TestSparingTheNextTask:
    @pytest.mark.services
    def test_zips_are_forgotten_and_still_there(self):
        assert importlib.import_module("zipped_first").NAME == "zipped_first"
        assert zips()
        spare_next_task()
        assert not zips()
        assert importlib.import_module("zipped_second").NAME == "zipped_second"

    @pytest.mark.services
    def test_what_is_there_after_the_first_task_is_not_looked_at_again(self):
        spare_next_task()
        frozen = gc.get_freeze_count()
        assert frozen > 10_000
        kept = [[number] for number in range(1000)]
        spare_next_task()
        assert gc.get_freeze_count() <= frozen, f"{len(kept)} lists of the second task would stay for good"
