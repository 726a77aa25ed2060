"""Whether a listed file is one of the table's."""

from itertools import permutations

import pytest

from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.plan.orphan_files import DAY_MS, EqualStores, KnownFiles, is_hidden, older_than_ms
from airflow_iceberg.storage.gate import STORE_OF_SCHEME


def judge(known: str, listed: str, **spelling: dict[str, str]) -> str:
    files = KnownFiles(EqualStores.of(spelling.get("equal_schemes"), spelling.get("equal_authorities")))
    files.add([known])
    return files.classify(listed)


class TestPaths:
    """A file is known by its path, whatever way it is spelled."""

    @pytest.mark.parametrize("listed", [
        "s3://b/t/data/a.parquet", "s3a://b/t/data/a.parquet", "s3n://B/t/data/a.parquet", "s3://b//t/data//a.parquet",
        "s3://b/t/data/%61.parquet", "/t/data/a.parquet", "s3://b/./t/./data/a.parquet", "s3://b/t/x/../data/a.parquet",
    ])  # fmt: skip
    def test_spellings_of_one_file(self, listed):
        assert judge("s3a://b/t/data/a.parquet", listed) == "known"

    @pytest.mark.parametrize("listed", ["file:///t/a", "file:/t/a", "/t/a", "file://localhost/t/a"])
    def test_local_files(self, listed):
        assert judge("file:/t/a", listed, equal_authorities={"localhost": ""}) == "known"

    def test_a_file_that_is_encoded_stays_whatever_of_the_two_is_meant(self):
        assert judge("s3://b/day=2026-01-01%2F/a", "s3://b/day=2026-01-01/a") == "known"

    def test_another_path_is_an_orphan(self):
        assert judge("s3://b/t/data/a.parquet", "s3://b/t/data/b.parquet") == "orphan"
        assert judge("s3://b/t/data/a.parquet", "s3://b/t/data/A.parquet") == "orphan"


class TestPrefixes:
    """The same path elsewhere is a doubt, unless the caller says that the two are the same."""

    def test_another_bucket_or_scheme_unless_the_caller_calls_them_equal(self):
        assert judge("s3://one/t/a", "s3://two/t/a") == judge("hdfs://n/t/a", "s3://n/t/a") == "doubtful"
        assert judge("hdfs://n1/t/a", "hdfs://n2/t/a", equal_authorities={"n1,n2": "cluster"}) == "known"
        assert judge("gs://b/t/a", "gcs://b/t/a", equal_schemes={"gcs": "gs"}) == "known"

    def test_schemes_and_hosts_that_reach_the_same_files(self):
        """As the gate has them: one decision, in two layers."""
        for one, store in STORE_OF_SCHEME.items():
            for other, store_of_other in STORE_OF_SCHEME.items():
                verdict = judge(f"{one}://n/t/a", f"{other}://n/t/a")
                is_local = "file" in (one, other) or "memory" in (one, other)
                assert verdict == "known" or store != store_of_other or is_local, (one, other)
                assert verdict != "known" or store == store_of_other or is_local, (one, other)
        same = [
            ("hdfs://N:8020/t/a", "hdfs://n/t/a"), ("memory://w/t/a", "memory:///w/t/a"),
            ("wasbs://c@x.blob.core.windows.net/t/a", "abfss://c@X.dfs.core.windows.net/t/a"),
        ]  # fmt: skip
        assert {judge(one, other) for one, other in same} == {"known"}
        assert judge("hdfs://n:9000/t/a", "hdfs://n/t/a") == "doubtful"

    def test_equal_names_in_any_order(self):
        """Also the other way round than by default, over several names, and in a circle."""
        assert judge("s3a://b/t/a", "s3://b/t/a", equal_schemes={"s3": "s3a"}) == "known"
        assert judge("s3n://b/t/a", "s3a://b/t/a", equal_schemes={"s3": "s3a"}) == "known"
        for given in ({"a": "b", "b": "c"}, {"a": "b", "b": "a", "c": "a"}, {"b,c": "a", "a": "c"}):
            for one, other in permutations("abc", 2):
                assert judge(f"hdfs://{one}/t", f"hdfs://{other}/t", equal_authorities=given) == "known"
        assert judge("hdfs://n:8020/t", "hdfs://m/t", equal_authorities={"n:8020": "m"}) == "known"

    def test_a_path_that_the_table_has_twice(self):
        files = KnownFiles()
        files.add(["s3://one/a", "s3://two/a"])
        assert files.classify("s3://one/a") == files.classify("s3://two/a") == "known"
        assert files.classify("s3://three/a") == "doubtful"
        assert files.stores_of("s3://three/a") == ["s3://one", "s3://two"]


class TestHidden:
    """Names that begin with a dot or an underscore are not looked at, unless they are partitions."""

    @pytest.mark.parametrize("name", [".staging/x/plan.json", "_SUCCESS", "data/_tmp/a.parquet", "data/.a.crc"])
    def test_hidden(self, name):
        assert is_hidden(name)

    def test_partitions_of_such_a_name(self):
        assert not is_hidden("data/_day=2026-01-01/a.parquet", ["_day"])
        assert is_hidden("data/_other=1/a.parquet", ["_day"])
        assert not is_hidden("data/day=2026-01-01/a.parquet")


class TestAge:
    """Only files of three days ago and older are orphans, unless the caller insists."""

    def test_three_days_by_default_and_less_than_one_has_to_be_said_twice(self):
        assert older_than_ms(None, now_ms=10 * DAY_MS, allow_recent=False) == 7 * DAY_MS
        with pytest.raises(InvalidInputError, match="less than 24 hours ago"):
            older_than_ms(10 * DAY_MS - 1, now_ms=10 * DAY_MS, allow_recent=False)
        assert older_than_ms(10 * DAY_MS, now_ms=10 * DAY_MS, allow_recent=True) == 10 * DAY_MS
