"""The end of a session on a Spark Connect server that loses its answers; the server is a stand-in, and needs no Java.

What runs in sessions, and ends with them, is tested with a real one: `test_connect`.
"""

import threading
from collections.abc import Iterator
from concurrent import futures
from typing import Any

import grpc
import pytest
from pyspark.sql.connect.proto import base_pb2, base_pb2_grpc

from airflow_iceberg.backends.connect import SparkConnect, session_id_of
from airflow_iceberg.commit.operation_key import OperationKey
from airflow_iceberg.errors import IcebergError
from airflow_iceberg.jobs.protocol.source import Source
from airflow_iceberg.jobs.spark import connect
from airflow_iceberg.jobs.spark.connect import ConnectServer
from tests.support.append_steps import plan_append

KEY = OperationKey.parse("dag/run/home/task/-1/1")
SESSION = "0b0f0c6e-9a5e-4d0e-8d0e-0123456789ab"


class Server(base_pb2_grpc.SparkConnectServiceServicer):
    """Ends sessions, and then loses so many answers, or gives none at all until it may."""

    def __init__(self) -> None:
        self.ended: list[str] = []
        self.loses = 0
        self.may_answer = threading.Event()
        self.may_answer.set()

    def ReleaseSession(self, request: Any, context: Any) -> Any:
        self.ended.append(request.session_id)
        self.may_answer.wait(60)
        if self.loses:
            self.loses -= 1
            context.abort(grpc.StatusCode.UNAVAILABLE, "Socket closed")
        return base_pb2.ReleaseSessionResponse(session_id=request.session_id)


@pytest.fixture
def server() -> Iterator[tuple[Server, ConnectServer]]:
    made = Server()
    running = grpc.server(futures.ThreadPoolExecutor(4))
    base_pb2_grpc.add_SparkConnectServiceServicer_to_server(made, running)
    port = running.add_insecure_port("127.0.0.1:0")
    running.start()
    yield made, ConnectServer(name="connection 'lake'", url=f"sc://127.0.0.1:{port}")
    made.may_answer.set()
    running.stop(None).wait()


class TestTheEndOfASession:
    """It is repeated when its answer is lost, and nobody waits for ever for one."""

    def test_whose_answer_is_lost_is_repeated(self, server):
        stand_in, known = server
        stand_in.loses = 2
        known.end(SESSION)
        assert stand_in.ended == [SESSION] * 3

    def test_that_gets_no_answer_at_all_has_its_time(self, server, monkeypatch):
        stand_in, known = server
        monkeypatch.setattr(connect, "END_SECONDS", 0.5)
        stand_in.may_answer.clear()
        with pytest.raises(IcebergError, match=r"does not answer .*: a session was not ended after"):
            known.end(SESSION)
        assert stand_in.ended == [SESSION]


class TestTheNextTry:
    """It starts nothing before it knows that what an earlier try has left has ended."""

    @pytest.mark.parametrize("loses", [2, 99])
    def test_of_a_task_whose_worker_died(self, loses, server, lake):
        stand_in, known = server
        table = lake.create()
        source = Source.from_sql("select 1L as id")
        first, second = (plan_append(table, source, operation_key=KEY, try_number=number) for number in (1, 2))
        backend = SparkConnect.__new__(SparkConnect)
        backend._io, backend._name, backend._server = table.io, "job", known
        stand_in.loses = loses
        if loses > 3:
            with pytest.raises(IcebergError, match="does not answer"):
                backend._end_earlier(second)
        else:
            backend._end_earlier(second)
        expected = session_id_of(second, first.staging_location)
        assert set(stand_in.ended) == {expected}
