"""What the pyarrow of Airflow 3.1's constraints does not know is refused by an error that says what to install."""

import pyarrow as pa
import pytest

from airflow_iceberg.data.arrow_version import explained
from airflow_iceberg.data.write.file_types import file_type
from airflow_iceberg.errors import UnsupportedError
from airflow_iceberg.format.types import IcebergType, UUIDType, VariantType


@pytest.fixture
def _older(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pa, "__version__", "18.1.0")


@pytest.mark.usefixtures("_older")
@pytest.mark.parametrize("type_", [UUIDType(), VariantType()], ids=str)
def test_types_that_it_cannot_mark_are_refused(type_: IcebergType) -> None:
    with pytest.raises(UnsupportedError, match=f"'id' is of type {type_}, which pyarrow 18.1.0 cannot mark .* 22 or"):
        file_type(type_, pa.binary(16), "id")


@pytest.mark.usefixtures("_older")
def test_a_file_with_such_a_type_says_what_to_do() -> None:
    error = OSError("Metadata contains Thrift LogicalType that is not recognized")
    assert explained(error).endswith("install pyarrow 22 or later where the rows are read and written")
    assert explained(OSError("disk full")) == "disk full"


def test_a_newer_one_is_not_blamed() -> None:
    error = OSError("Logical type of another kind")
    assert explained(error) == str(error)
