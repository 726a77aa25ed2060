"""Fixtures of the stores that several folders of tests share; each is started once, by the first test that asks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.services.gcs import FakeGcs
from tests.services.hdfs import Hdfs
from tests.services.seaweedfs import SeaweedFS

if TYPE_CHECKING:
    from tests.services.azurite import Azurite


@pytest.fixture(scope="session")
def hdfs() -> Iterator[Hdfs]:
    server = Hdfs()
    yield server
    server.remove()


@pytest.fixture(scope="session")
def seaweedfs() -> Iterator[SeaweedFS]:
    server = SeaweedFS().start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def gcs() -> Iterator[FakeGcs]:
    server = FakeGcs()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def azurite() -> Iterator[Azurite]:
    from tests.services.azurite import Azurite  # its client is not installed everywhere

    server = Azurite()
    yield server
    server.stop()
