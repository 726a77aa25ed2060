"""Files on a real HDFS, by its own protocol and by HTTP."""

import gc
import multiprocessing
import uuid

import pytest

from airflow_iceberg.errors import StorageError
from airflow_iceberg.storage import FsspecFileIO
from tests.storage.contract import StoreContract

pytestmark = pytest.mark.services


class TestByItsOwnProtocol(StoreContract):
    """HDFS is a store."""

    @pytest.fixture
    def io(self):
        return FsspecFileIO()

    @pytest.fixture
    def root(self, hdfs):
        return f"hdfs://{hdfs.authority}/tests/{uuid.uuid4().hex}"

    def test_a_file_that_cannot_be_finished_is_an_error_of_the_system(self, io, root):
        filesystem, path = io.filesystem(f"{root}/begun")
        file = filesystem.open(path, "wb")
        file.write(b"rows")
        filesystem.client.delete(path.rpartition("/")[0], True)
        with pytest.raises(OSError, match="begun"):
            file.close()

    def test_a_forked_process_can_use_what_its_parent_opened(self, io, root):
        """It cannot: the driver's threads don't survive a fork. It is told so, where it would wait for ever."""
        io.create(f"{root}/before", b"")
        unused = FsspecFileIO()
        unused.create(f"{root}/unused", b"")
        context = multiprocessing.get_context("fork")
        answer = context.Queue()

        def use() -> None:
            gc.collect()  # to delete a driver would be to wait for its threads
            try:
                io.create(f"{root}/by-child", b"child")
            except StorageError as error:
                answer.put(str(error))

        child = context.Process(target=use)
        gc.disable()
        unused.itself, unused = unused, None
        child.start()
        gc.enable()
        assert "hdfs:// was used by this process's parent before it forked" in answer.get(timeout=60)
        child.join(60)
        assert not io.exists(f"{root}/by-child")


class TestByHttp(StoreContract):
    """So it is by WebHDFS."""

    @pytest.fixture
    def io(self, hdfs):
        return FsspecFileIO({"hdfs.user": "root", "allowed-locations": f"webhdfs://{hdfs.web_authority}/tests"})

    @pytest.fixture
    def root(self, hdfs):
        return f"webhdfs://{hdfs.web_authority}/tests/{uuid.uuid4().hex}"
