"""What a Python worker does between two tasks."""

import gc
import importlib
import sys
import zipfile
from zipimport import zipimporter

import pyarrow as pa
import pytest

from airflow_iceberg.jobs.spark.worker import _tables, spare_next_task


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


def without_offsets(entry: pa.DataType) -> pa.Array:
    """Return a list without entries as Spark 3.5 sends it: its buffer of offsets is empty."""
    nothing = pa.py_buffer(b"\xff" * 64).slice(0, 0)
    children = [without_offsets(entry.value_type)] if pa.types.is_list(entry) else [pa.array([], entry)]
    return pa.Array.from_buffers(pa.list_(entry), 0, [None, nothing], children=children)


@pytest.mark.parametrize("entry", [pa.int32(), pa.list_(pa.int32()), pa.struct({"x": pa.list_(pa.string())})], ids=str)
def test_lists_within_lists_that_spark_sends_without_offsets_are_measured(entry):
    """pyarrow read offsets that were not there, and the worker died of it."""
    inner = without_offsets(entry)
    struct = pa.StructArray.from_arrays([inner], ["lists"])
    bits, zeros = pa.py_buffer(b"\1"), pa.py_buffer(bytes(8))
    for values in (inner, struct):
        outer = pa.Array.from_buffers(pa.list_(values.type), 1, [bits, zeros], children=[values])
        (table,) = _tables(iter([pa.record_batch([outer, pa.array([7])], ["lists", "n"])]))
        assert table.nbytes > 0
        assert table.to_pylist() == [{"lists": [], "n": 7}]


def addresses(array: pa.Array) -> list[int | None]:
    return [buffer and buffer.address for buffer in array.buffers()]


def test_what_is_whole_is_not_copied():
    batch = pa.record_batch({"lists": pa.array([[[1], []], None]), "maps": pa.array([{"a": [1]}, {}])})
    (table,) = _tables(iter([batch]))
    for before, after in zip(batch.columns, table.columns, strict=True):
        assert addresses(before) == addresses(after.chunk(0))
