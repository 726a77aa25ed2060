"""The end of a session on a Spark Connect server that loses its answers; the server is a stand-in, and needs no Java.

What runs in sessions, and ends with them, is tested with a real one: `test_connect`.
"""

import hashlib
import json
import logging
import threading
import uuid
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
import pytest
from pyspark.sql.connect.proto import base_pb2, base_pb2_grpc

from airflow_iceberg.backends.backend import open_backend
from airflow_iceberg.backends.config import SparkConfig
from airflow_iceberg.backends.connect import SparkConnect, session_id_of, session_secret
from airflow_iceberg.commit.operation_key import OperationKey
from airflow_iceberg.errors import IcebergError
from airflow_iceberg.hooks.iceberg import IcebergHook
from airflow_iceberg.jobs.protocol.source import Source
from airflow_iceberg.jobs.spark import connect
from airflow_iceberg.jobs.spark.connect import ConnectServer
from airflow_iceberg.table import Table
from tests.jobs.builders import make_plan
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
        backend._secret, backend._can_find = b"secret", True
        stand_in.loses = loses
        if loses > 3:
            with pytest.raises(IcebergError, match="does not answer"):
                backend._end_earlier(second)
        else:
            backend._end_earlier(second)
        expected = session_id_of(second, first.staging_location, b"secret")
        assert set(stand_in.ended) == {expected}

    def test_ends_nothing_whose_id_nobody_knows(self, server, lake, caplog):
        stand_in, known = server
        table = lake.create()
        source = Source.from_sql("select 1L as id")
        _, second = (plan_append(table, source, operation_key=KEY, try_number=number) for number in (1, 2))
        backend = SparkConnect.__new__(SparkConnect)
        backend._io, backend._name, backend._server = table.io, "job", known
        backend._secret, backend._can_find = b"of this try", False
        caplog.set_level(logging.INFO)
        backend._end_earlier(second)
        assert stand_in.ended == []
        assert "an earlier try may have left a session running" in caplog.text


class TestTheIdOfASession:
    """Every user of the server who knows it can join the session: so it is made of a secret of this installation."""

    FERNET = "a" * 43 + "="
    STORE = {"s3.secret-access-key": "s3cret-of-the-lake", "warehouse": "s3://lake"}

    @pytest.fixture(autouse=True)
    def no_fernet_key(self, monkeypatch):
        monkeypatch.setenv("AIRFLOW__CORE__FERNET_KEY", "")

    def test_it_differs_with_each_secret_and_is_the_same_for_the_next_try(self, monkeypatch):
        plan = make_plan(Path("/nowhere"), Source.from_sql("select 1L as id"))
        public = hashlib.sha256(f"{plan.table_uuid}\n{plan.staging_location}".encode()).digest()
        ids = [str(uuid.UUID(bytes=public[:16], version=4))]
        other = {**self.STORE, "s3.secret-access-key": "another-s3cret"}
        for properties, fernet in [(self.STORE, ""), (other, ""), ({}, self.FERNET), (self.STORE, self.FERNET)]:
            monkeypatch.setenv("AIRFLOW__CORE__FERNET_KEY", fernet)
            secret = session_secret(properties)
            assert secret == session_secret(dict(reversed(properties.items())))
            ids.append(session_id_of(plan, plan.staging_location, secret))
            assert uuid.UUID(ids[-1]).version == 4
        ids.append(session_id_of(plan, f"{plan.staging_location}x", secret))
        assert len(set(ids)) == len(ids)

    def test_what_everybody_knows_or_can_guess_is_no_secret(self, monkeypatch):
        """What Airflow's SDK gives for a missing key is known to all."""
        for fernet in ("", "{FERNET_KEY}", "short", "§", ","):
            monkeypatch.setenv("AIRFLOW__CORE__FERNET_KEY", fernet)
            assert session_secret({"s3.region": "eu-central-1", "password": "1234567"}) is None, fernet

    def test_a_newer_fernet_key_comes_first(self, monkeypatch):
        monkeypatch.setenv("AIRFLOW__CORE__FERNET_KEY", self.FERNET)
        before = session_secret({})
        monkeypatch.setenv("AIRFLOW__CORE__FERNET_KEY", f"{'b' * 43}=,{self.FERNET}")
        assert session_secret({}) == before

    @pytest.mark.costly
    def test_a_job_takes_that_of_its_catalog_and_else_a_random_one(self, lake, monkeypatch):
        lake.create()
        monkeypatch.setenv("AIRFLOW_CONN_CONNECT", json.dumps({"conn_type": "spark_connect", "host": "localhost"}))
        for extra in (self.STORE, {}):
            connection = {**lake.connection, "extra": {**extra, **lake.connection["extra"]}}
            monkeypatch.setenv("AIRFLOW_CONN_ICEBERG_CATALOG_DEFAULT", json.dumps(connection))
            table = Table.load(IcebergHook().catalog, "s.t")
            first, second = (
                open_backend("connect", SparkConfig(), table=table, source=None, name="job") for _ in range(2)
            )
            assert first._can_find is bool(extra)
            assert (first._secret == second._secret) is bool(extra)
            assert len(first._secret) == 32
