"""Absurd numbers in what others say: they stop no commit, and no task ends with a bare error of Python."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from airflow_iceberg.catalogs.metadata_file import metadata_version
from airflow_iceberg.commit.operation_key import OperationKey
from airflow_iceberg.errors import IcebergError, IncompatibleChangeError, InvalidInputError
from airflow_iceberg.expressions.binding import parse_filter
from airflow_iceberg.format.metadata.updates import AddSnapshot, Change, SetProperties, SetSnapshotRef
from airflow_iceberg.format.properties import kinds
from airflow_iceberg.format.schemas.shorthand import schema_from_shorthand
from airflow_iceberg.format.snapshots import SnapshotRef
from airflow_iceberg.format.transforms.terms import parse_term
from airflow_iceberg.format.transforms.transform import UnknownTransform, parse_transform
from airflow_iceberg.format.values.digits import whole_number
from airflow_iceberg.operations.file_inventory import expected_files
from airflow_iceberg.storage.stores.store import Settings
from airflow_iceberg.table import Table
from tests.support.changes import NAME, Append, arrow, ids, make_table, plan
from tests.support.memory import MemoryCatalog

LONG = "9" * 5000
KEY = OperationKey(dag_id="d", run_id="r", task_id="t", epoch=5, installation="i", try_number=2)
SCHEMA = schema_from_shorthand({"s": "string", "i": "int", "ti": "time"})


def catalog_with(summary: dict[str, str]) -> MemoryCatalog:
    """Return a catalog whose table has a snapshot that another writer made, with more in its summary."""
    catalog = MemoryCatalog()
    make_table(catalog, 2)
    plan(catalog, Append("a", ids(1))).commit()
    state = catalog.load(NAME)
    last = state.metadata.current_snapshot()
    assert last is not None
    forged = dataclasses.replace(
        last,
        snapshot_id=last.snapshot_id + 1,
        parent_snapshot_id=last.snapshot_id,
        sequence_number=state.metadata.last_sequence_number + 1,
        summary={**last.summary, **summary},
    )
    main = SetSnapshotRef(ref_name="main", ref=SnapshotRef(snapshot_id=forged.snapshot_id, type="branch"))
    catalog.commit(state, Change(updates=(AddSnapshot(snapshot=forged), main), requirements=()))
    return catalog


class TestDigits:
    """A count is a text of ASCII digits that fits into a long."""

    def test_these_are_counts(self) -> None:
        texts = ["0", "007", "9223372036854775807"]
        assert [whole_number(text) for text in texts] == [0, 7, 2**63 - 1]

    @pytest.mark.parametrize("text", ["", "-5", "+5", "1.0", "1e3", " 7", "²", "٣", "9223372036854775808", LONG])
    def test_these_are_none(self, text: str) -> None:
        assert whole_number(text) is None


class TestSummaries:
    """What other writers put into a snapshot's summary stops no commit."""

    @pytest.mark.parametrize("name", ["total-records", "total-data-files", "total-files-size", "total-delete-files"])
    @pytest.mark.parametrize("text", [LONG, "²", "NaN", str(2**63 - 1)])
    def test_a_total_that_is_no_number_is_left_out(self, name: str, text: str) -> None:
        catalog = catalog_with({name: text})
        plan(catalog, Append("a", ids(2))).commit()
        snapshot = Table.load(catalog, NAME).current_snapshot()
        assert snapshot is not None
        expected = str(2**63 - 1) if (name, text) == ("total-delete-files", str(2**63 - 1)) else None
        assert snapshot.summary.get(name) == expected

    def test_the_number_of_a_try(self) -> None:
        other = OperationKey(dag_id="d", run_id="r", task_id="t", epoch=7, installation="i")
        catalog = catalog_with({"airflow.operation-key": str(other), "airflow.try-number": LONG})
        with pytest.raises(IncompatibleChangeError, match="was superseded"):
            plan(catalog, Append("a", ids(2)), key=KEY).commit()

    def test_the_number_of_files_to_expect(self) -> None:
        assert expected_files(catalog_with({"total-data-files": LONG}).load(NAME).metadata) == 1


class TestProperties:
    """A property is read, or the error names it."""

    @pytest.mark.parametrize("name", ["write.parquet.page-size-bytes", "write.parquet.dict-size-bytes"])
    @pytest.mark.parametrize("text", [LONG, "99999999999999999999"])
    def test_a_size_that_no_file_has(self, name: str, text: str) -> None:
        with pytest.raises(InvalidInputError, match=f"property {name} is '9{{20,100}}…?' ") as error:
            self.append(name, text)
        assert len(str(error.value)) < 300

    @pytest.mark.parametrize("text", [LONG, "²"])
    def test_columns_with_metrics(self, text: str) -> None:
        self.append("write.metadata.metrics.max-inferred-column-defaults", text)

    @pytest.mark.parametrize("text", [LONG, "²", "0", "-1"])
    def test_a_number_of_bytes(self, text: str) -> None:
        with pytest.raises(InvalidInputError, match="expected a number of bytes above 0"):
            kinds.byte_count("x", text)

    def append(self, name: str, text: str) -> None:
        catalog = MemoryCatalog()
        make_table(catalog, 2)
        change = Change(updates=(SetProperties(updates={name: text}),), requirements=())
        catalog.commit(catalog.load(NAME), change)
        Table.load(catalog, NAME).append(arrow([("a", 3)]))

    @pytest.mark.parametrize("text", ["²", LONG, "9" * 19])
    def test_the_expiry_of_credentials(self, text: str) -> None:
        given = {"s3.session-token-expires-at-ms": text}
        settings = Settings(given, refresh=dict)
        assert settings.current() == given
        assert settings.expires_ms() is None


class TestMetadata:
    """Numbers in names and terms."""

    def test_the_version_in_a_name(self) -> None:
        assert metadata_version(f"s3://b/t/metadata/{LONG}-x.metadata.json") == -1

    def test_a_transform(self) -> None:
        assert isinstance(parse_transform(f"bucket[{LONG}]"), UnknownTransform)

    @pytest.mark.parametrize("term", [f"bucket[{LONG}](i)", f"bucket({LONG}, i)", f"truncate(s, {LONG})"])
    def test_a_term(self, term: str) -> None:
        with pytest.raises(IcebergError):
            parse_term(term, SCHEMA)


class TestValuesOfPlaceholders:
    """A value that no column holds is an error about the value."""

    @pytest.mark.parametrize(("predicate", "value", "message"), [
        ("s = :v", 10**5000, r"cannot compare column 's' \(string\) with Decimal\('10{290}"),
        ("s in (:v)", [-(10**5000)], r"cannot compare column 's' \(string\)"),
        ("s like :v", 10**5000, "LIKE needs a pattern in quotes"),
        ("s = :v", np.array([1, 2]), "is a ndarray, expected text"),
        ("i in (:v)", np.array([1, 2]), "is a ndarray, expected text"),
        ("i in (:v)", [1, np.array([1, 2])], "is a ndarray, expected text"),
        ("ti = :v", b"12:00", r"cannot compare column 'ti' \(time\)"),
        ("ti = :v", 5, r"cannot compare column 'ti' \(time\)"),
    ], ids=map(str, range(8)))  # fmt: skip
    def test_it_is_named(self, predicate: str, value: Any, message: str) -> None:
        with pytest.raises(InvalidInputError, match=message):
            parse_filter(predicate, SCHEMA, params={"v": value})

    def test_a_number_in_the_text(self) -> None:
        assert str(parse_filter(f"i < {LONG}", SCHEMA)) == str(parse_filter("i < 9e300", SCHEMA))

    def test_a_scalar_of_numpy_is_its_value(self) -> None:
        assert parse_filter("i = :v", SCHEMA, params={"v": np.int64(3)}) == parse_filter("i = 3", SCHEMA)
