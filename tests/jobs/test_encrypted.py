"""Properties for the workers of Spark Connect are encrypted; on a real server: `tests/airflow/test_connect.py`."""

import pickle

import pytest
from pyspark import SparkFiles

from airflow_iceberg.jobs.spark.encrypted import EncryptedProperties, encrypted

SECRET = "st0rage-s3cret"
KEY = bytes(range(32))


class TestEncryptedProperties:
    """They are plain here and on a worker of the session that has the key, and on no way between the two."""

    @pytest.fixture
    def properties(self) -> EncryptedProperties:
        return EncryptedProperties({"s3.secret-access-key": SECRET, "s3.region": "ü"}, key_file="the.key", key=KEY)

    def test_neither_a_text_of_them_nor_what_is_sent_shows_a_secret(self, properties):
        assert SECRET not in str(properties) + repr(properties)
        sent = [pickle.dumps(properties) for _ in range(2)]
        for each in sent:
            assert SECRET.encode() not in each
            assert KEY not in each
        assert sent[0] != sent[1]

    def test_a_worker_with_the_key_reads_them(self, properties, tmp_path, monkeypatch):
        monkeypatch.setattr(SparkFiles, "_root_directory", str(tmp_path))
        monkeypatch.setattr(SparkFiles, "_is_running_on_worker", True)
        with pytest.raises(FileNotFoundError):
            pickle.loads(pickle.dumps(properties))
        (tmp_path / "the.key").write_bytes(KEY)
        found = pickle.loads(pickle.dumps(properties))
        assert (type(found), found) == (dict, dict(properties))
        (tmp_path / "the.key").write_bytes(KEY[::-1])
        with pytest.raises(ValueError):
            pickle.loads(pickle.dumps(properties))

    def test_classic_spark_and_no_properties_need_no_key(self):
        assert encrypted(object(), {"a": "b"}) == {"a": "b"}
        assert encrypted(None, {}) == {}
