"""Where `hdfs://` goes: to the NameNodes of its settings, and no wrong port has to be waited for to be told."""

import json
import socket
import subprocess
import sys
import threading

import pytest

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.errors import StorageError
from airflow_iceberg.storage import FsspecFileIO


@pytest.fixture
def refused():
    """host:port of this machine where nobody listens, and nobody else can begin to."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{holder.getsockname()[1]}"


class TestAPortWhereNobodyListens:
    """It is said before the first request, with what was expected there; surely nothing was changed."""

    def expected(self, what, refused):
        return (
            f"cannot {what}: no NameNode answers at {refused}: Connection refused; expected the port of its RPC "
            "(8020 or 9000 as a rule), which is another than that of its web pages"
        )

    def test_reading(self, refused):
        with pytest.raises(StorageError) as raised:
            FsspecFileIO().read(f"hdfs://{refused}/x")
        assert str(raised.value) == self.expected(f"read hdfs://{refused}/x", refused)
        assert raised.value.is_refused

    def test_creating(self, refused):
        with pytest.raises(StorageError) as raised:
            FsspecFileIO().create(f"hdfs://{refused}/x", b"")
        assert str(raised.value) == self.expected(f"create hdfs://{refused}/x", refused)
        assert raised.value.is_refused

    def test_a_hadoop_catalog(self, refused):
        with pytest.raises(StorageError, match=f"no NameNode answers at {refused}: Connection refused"):
            load_catalog("prod", type="hadoop", warehouse=f"hdfs://{refused}/warehouse").list_namespaces()


# The driver starts threads that a later fork of this process would not survive.
LOOK = """
import json, sys
from airflow_iceberg.errors import StorageError
from airflow_iceberg.storage import FsspecFileIO
io = FsspecFileIO(json.loads(sys.argv[1]))
filesystem, path = io.filesystem(sys.argv[2])
for ask in (lambda: io.exists(sys.argv[2]), lambda: filesystem.info(path)):
    try:
        print("answered", ask())
    except (StorageError, OSError, RuntimeError) as error:
        print("failed", repr(error))
"""


class NameNodes:
    """Two that hang up on everybody; `called` has the numbers of those that somebody spoke to."""

    def __init__(self):
        self.called = set()
        self.listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
        for number, listener in enumerate(self.listeners):
            threading.Thread(target=self.serve, args=(number, listener), daemon=True).start()
        self.places = [f"127.0.0.1:{listener.getsockname()[1]}" for listener in self.listeners]

    def serve(self, number, listener):
        while True:
            try:
                connection, _ = listener.accept()
                with connection:
                    if connection.recv(64):
                        self.called.add(number)
            except OSError:
                if listener.fileno() < 0:
                    return

    def close(self):
        for listener in self.listeners:
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()


class TestSettingsOfHadoop:
    """`hdfs.config.<name>` is Hadoop's setting of that name, whether or not there are files with settings."""

    ATTEMPTS = "dfs.client.failover.max.attempts"

    @pytest.fixture
    def nodes(self):
        nodes = NameNodes()
        yield nodes
        nodes.close()

    def called(self, nodes, location, tmp_path, **config):
        """The NameNodes that somebody speaks to who looks for a file, by the store and by its file system."""
        properties = {f"hdfs.config.{name}": value for name, value in config.items()}
        answer = subprocess.run(
            [sys.executable, "-c", LOOK, json.dumps(properties), location],
            capture_output=True,
            text=True,
            timeout=300,
            env={"PATH": "", "HADOOP_CONF_DIR": str(tmp_path)},  # empty
        )
        assert [line.split()[0] for line in answer.stdout.splitlines()] == ["failed", "failed"], answer
        return nodes.called

    def service(self, nodes):
        places = {f"dfs.namenode.rpc-address.lake.{key}": place for key, place in zip("ab", nodes.places, strict=True)}
        return {"dfs.nameservices": "lake", "dfs.ha.namenodes.lake": "a,b", **places}

    @pytest.mark.costly
    def test_a_name_service_is_known_by_them_alone(self, nodes, tmp_path):
        config = {**self.service(nodes), self.ATTEMPTS: "1"}
        assert self.called(nodes, "hdfs://lake/x", tmp_path, **config) == {0, 1}

    @pytest.mark.costly
    def test_they_say_how_often_another_one_is_asked(self, nodes, tmp_path):
        config = {**self.service(nodes), self.ATTEMPTS: "0"}
        assert len(self.called(nodes, "hdfs://lake/x", tmp_path, **config)) == 1

    @pytest.mark.costly
    def test_so_is_the_place_of_locations_without_one(self, nodes, tmp_path):
        config = {"fs.defaultFS": f"hdfs://{nodes.places[1]}", self.ATTEMPTS: "0"}
        assert self.called(nodes, "hdfs:///x", tmp_path, **config) == {1}
