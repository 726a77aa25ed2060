"""Credentials that end: times as servers write them, keys that belong together, and addresses of stores."""

import datetime as dt
from collections.abc import Mapping

import pytest

from airflow_iceberg.backends.spark_submit import spark_environment, spark_settings
from airflow_iceberg.errors import IcebergError, InvalidInputError
from airflow_iceberg.storage import FsspecFileIO
from airflow_iceberg.storage.addresses import endpoint_of, host_of
from airflow_iceberg.storage.stores.lent_keys import expires_ms, replaced_keys
from airflow_iceberg.storage.stores.store import Settings
from tests.support.http_server import HttpServer, Reply

LATER_MS = 4_000_000_000_000
LATER = dt.datetime.fromtimestamp(LATER_MS / 1000, dt.UTC)
READ = {
    str(LATER_MS): LATER_MS,
    f"  {LATER_MS}\t": LATER_MS,
    f"{LATER_MS}.75": LATER_MS,
    "4e12": LATER_MS,
    "4.0E+12": LATER_MS,
    f"+{LATER_MS}": LATER_MS,
    "4000000000": LATER_MS,  # seconds
    "4000000000.5": LATER_MS + 500,
    LATER.isoformat(): LATER_MS,
    LATER.isoformat().replace("+00:00", "Z"): LATER_MS,
    LATER.replace(tzinfo=None).isoformat(): LATER_MS,  # without a zone: UTC
    LATER.isoformat(" "): LATER_MS,
    LATER.astimezone(dt.timezone(dt.timedelta(hours=5))).isoformat(): LATER_MS,
    "1": 1,
}
UNKNOWN = [
    *(
        "",
        " ",
        "0",
        "-1",
        "-1700000000000",
        "true",
        "false",
        "null",
        "None",
        "never",
        "NaN",
        "inf",
        "-Infinity",
        "1e99",
    ),
    *(
        "9" * 19,
        "9" * 5000,
        "1e-5",
        "0x10",
        "²",
        "0001-01-01T00:00:00+14:00",
        "2026-13-45",
        "1,5",
        "4_000",
        "PT1H",
        "[]",
    ),
]
NAMES = {
    "s3": ("s3.access-key-id", "s3.session-token-expires-at-ms"),
    "gcs": ("gcs.oauth2.token", "gcs.oauth2.token-expires-at"),
    "adls": ("adls.sas-token.lake", "adls.sas-token-expires-at-ms.lake"),
}


class TestTimes:
    """A time that can be read is used; any other one is unknown, and never an error of Python's."""

    @pytest.mark.parametrize("kind", NAMES)
    def test_all_notations(self, kind: str) -> None:
        key, expiry = NAMES[kind]
        read = {text: expires_ms({key: "k", expiry: text}, f"{kind}.") for text in READ}
        assert read == READ
        assert {text: expires_ms({key: "k", expiry: text}) for text in UNKNOWN} == dict.fromkeys(UNKNOWN)

    @pytest.mark.costly
    def test_the_stores_work_with_each(self) -> None:
        """The drivers have forms of their own for it, with limits of their own."""
        with HttpServer(lambda request: Reply(body=b"data")) as server:
            for text in (*READ, *UNKNOWN):
                for kind, location in (("s3", "s3://lake/a"), ("gcs", "gs://lake/a")):
                    key, expiry = NAMES[kind]
                    lent = {key: "k" * 20, expiry: text}
                    lent |= {"s3.secret-access-key": "s", "s3.region": "us-east-1"} if kind == "s3" else {}
                    newer = {**lent, expiry: str(LATER_MS)}
                    host = {"s3": "s3.endpoint", "gcs": "gcs.service.host"}[kind]
                    io = FsspecFileIO({host: server.uri, **lent}, refresh=lambda newer=newer: newer)
                    io.filesystem(location)


class TestNewerKeys:
    """Keys, session token and expiry come together and go together."""

    @pytest.mark.parametrize(
        ("older", "newer", "expected"),
        [
            (
                {"s3.access-key-id": "a", "s3.secret-access-key": "b", "s3.session-token": "c",
                 "s3.session-token-expires-at-ms": "1", "s3.region": "r"},
                {"s3.access-key-id": "x", "s3.secret-access-key": "y"},
                {"s3.access-key-id": "x", "s3.secret-access-key": "y", "s3.region": "r"},
            ),
            (
                {"gcs.oauth2.token": "a", "gcs.oauth2.token-expires-at": "1", "gcs.project-id": "p"},
                {"gcs.oauth2.token": "x"},
                {"gcs.oauth2.token": "x", "gcs.project-id": "p"},
            ),
            (
                {"adls.sas-token.a": "1", "adls.sas-token-expires-at-ms.a": "1", "adls.sas-token.b": "2",
                 "adls.sas-token-expires-at-ms.b": "2"},
                {"adls.sas-token.a.dfs.core.windows.net": "x"},
                {"adls.sas-token.a.dfs.core.windows.net": "x", "adls.sas-token.b": "2",
                 "adls.sas-token-expires-at-ms.b": "2"},
            ),
            ({"adls.sas-token.a": "1", "adls.token": "2"}, {"adls.sas-token": "x"}, {"adls.sas-token": "x"}),
            # Keys of another store say nothing of these, and an expiry without keys says nothing of the older ones.
            (
                {"s3.access-key-id": "a", "s3.session-token-expires-at-ms": "5"},
                {"gcs.oauth2.token": "x", "s3.session-token-expires-at-ms": "9"},
                {"s3.access-key-id": "a", "s3.session-token-expires-at-ms": "5", "gcs.oauth2.token": "x"},
            ),
            ({"s3.access-key-id": "a", "s3.session-token-expires-at-ms": "5"}, {}, None),
            # Nobody's signature is one of the keys.
            (
                {"s3.anonymous": "true", "s3.region": "r"},
                {"s3.access-key-id": "x", "s3.secret-access-key": "y"},
                {"s3.access-key-id": "x", "s3.secret-access-key": "y", "s3.region": "r"},
            ),
            (
                {"s3.access-key-id": "a", "s3.secret-access-key": "b", "s3.session-token-expires-at-ms": "1"},
                {"s3.anonymous": "True"},
                {"s3.anonymous": "True"},
            ),
            ({"s3.access-key-id": "a"}, {"s3.anonymous": "false"}, {"s3.access-key-id": "a", "s3.anonymous": "false"}),
            ({"s3.anonymous": "true"}, {"s3.anonymous": "false"}, {"s3.anonymous": "false"}),
            (
                {},
                {"s3.anonymous": "true", "s3.access-key-id": "x", "s3.secret-access-key": "y"},
                {"s3.access-key-id": "x", "s3.secret-access-key": "y"},
            ),
        ],
    )  # fmt: skip
    def test_replace_the_older_ones(
        self, older: Mapping[str, str], newer: Mapping[str, str], expected: Mapping[str, str] | None
    ) -> None:
        assert replaced_keys(older, newer) == (older if expected is None else expected)

    def test_without_an_expiry_they_are_used(self) -> None:
        """The older expiry beside them was an error of botocore's for each request."""
        shown: list[str] = []

        def answer(request: object) -> Reply:
            shown.append(request.headers["Authorization"])  # type: ignore[attr-defined]
            return Reply(body=b"data")

        first = {"s3.access-key-id": "OLD", "s3.secret-access-key": "s", "s3.session-token": "t"}
        first |= {"s3.session-token-expires-at-ms": "1700000000000", "s3.region": "us-east-1"}
        asked = []
        with HttpServer(answer) as server:
            io = FsspecFileIO(
                {**first, "s3.endpoint": server.uri},
                refresh=lambda: asked.append(1) or {"s3.access-key-id": "NEW", "s3.secret-access-key": "s"},
            )
            assert io.read("s3://lake/a") == b"data"
            assert io.filesystem("s3://lake/a")[0].cat_file("lake/a") == b"data"
            assert "s3.session-token" not in io.current_properties()  # also for a job
        assert all("NEW" in each for each in shown)
        assert len(asked) == 1

    def test_what_an_answer_lacks_stays_as_it_was(self) -> None:
        given = {"s3.access-key-id": "a", "s3.session-token-expires-at-ms": "1"}
        assert Settings(given, refresh=dict).current() == given


class TestAddresses:
    """An address without a scheme is one of https, and what is none is an error that names the property."""

    ADDRESSES = {
        "s3.example.com": "https://s3.example.com",
        " https://s3.example.com ": "https://s3.example.com",
        "localhost:9000": "https://localhost:9000",
        "//s3.example.com": "https://s3.example.com",
        "http://[::1]:9000": "http://[::1]:9000",
        "[fe80::1]": "https://[fe80::1]",
        "HTTPS://S3.example.com/minio/": "HTTPS://S3.example.com/minio/",
        "http://min_io:9000": "http://min_io:9000",
        "": None,
        "  ": None,
    }
    NONE = [
        *("https://", "http:// x", "https://[::1", "https://::1", "::1", "https://[1:2]", "ftp://host", "s3://bucket"),
        *("https://host:99999", "https://host:x", "https://user:s3cr3t@host", "https://a\\@b", "https://a b", "https://?x"),
        *("https://\x00", "http://ho\nst", "https://hö.example.com", "true", "[]")[:3],
    ]  # fmt: skip

    def test_are_read(self) -> None:
        assert {text: endpoint_of({"s3.endpoint": text}, "s3.endpoint") for text in self.ADDRESSES} == self.ADDRESSES
        assert host_of({"adls.account-host": " https://lake.example.com/ "}, "adls.account-host") == "lake.example.com"
        with pytest.raises(InvalidInputError, match="begins with http://, expected a host"):
            host_of({"adls.account-host": "http://lake.example.com"}, "adls.account-host")

    def test_are_refused(self) -> None:
        for text in self.NONE:
            with pytest.raises(InvalidInputError, match=r"property s3\.endpoint is .*, expected https://host") as error:
                endpoint_of({"s3.endpoint": text}, "s3.endpoint")
            assert "s3cr3t" not in str(error.value)

    def test_in_all_stores_and_jobs(self) -> None:
        keys = {
            "s3.access-key-id": "a",
            "s3.secret-access-key": "b",
            "gcs.oauth2.token": "anon",
            "adls.account-key": "a",
        }
        stores = {"s3.endpoint": "s3://lake/a", "gcs.service.host": "gs://lake/a"}
        stores["adls.account-host"] = "abfss://c@lake.dfs.core.windows.net/a"
        for text in (*self.ADDRESSES, *self.NONE):
            for name, location in stores.items():
                io = FsspecFileIO({**keys, name: text})
                try:
                    io.filesystem(location)
                except IcebergError:
                    assert text in self.NONE or name == "adls.account-host"
        lent = {**keys, "s3.endpoint": " store.example.com"}
        assert spark_environment(lent)["AWS_ENDPOINT_URL"] == "https://store.example.com"
        assert spark_settings(lent)["spark.hadoop.fs.s3a.endpoint"] == "https://store.example.com"
        assert spark_settings(lent)["spark.hadoop.fs.s3a.connection.ssl.enabled"] == "true"
        assert "AWS_ENDPOINT_URL" not in spark_environment({**lent, "s3.endpoint": " "})
        with pytest.raises(InvalidInputError, match="expected true or false"):
            spark_settings({**lent, "s3.force-virtual-addressing": "yes"})
