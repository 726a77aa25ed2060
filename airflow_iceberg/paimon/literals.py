"""Values of partition keys as users write them: text, numbers and Python's own dates and times, by the key's type."""

from __future__ import annotations

import datetime as dt
import re
import struct
from collections.abc import Callable, Mapping
from decimal import Context, Decimal, InvalidOperation
from typing import Any, NoReturn

from airflow_iceberg.errors import InvalidInputError, came
from airflow_iceberg.paimon.schema import PaimonSchema
from airflow_iceberg.paimon.types import PaimonType

_EPOCH_DAY = dt.date(1970, 1, 1).toordinal()
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_WIDE = Context(prec=76)  # Python's default has 28 digits, a DECIMAL up to 38
_MOMENT = "a time like '2026-01-01 10:30:00'"
_EXAMPLES = {
    "DATE": "a date like '2026-01-01'",
    "TIME": "a time like '10:30'",
    "TIMESTAMP": _MOMENT,
    "TIMESTAMP_LTZ": _MOMENT,
}
_BITS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}


def partition_values(schema: PaimonSchema, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of partition keys in the form of manifest entries.

    Args:
        given: some or all of the keys; `{"dt": "2026-11-21", "region": "eu", "hour": 7}`, None for null.

    Raises:
        InvalidInputError: a name is no partition key, or a value does not fit its type.
    """
    schema.check_partition_keys(given)
    return {name: internal_value(value, schema.field(name).type, name=name) for name, value in given.items()}


def internal_value(value: Any, type_: PaimonType, *, name: str) -> Any:
    """Return a value in the form that `types` describes; a date or time that is a number is not changed."""
    if value is None:
        return None
    try:
        read = _READERS.get(type_.root)
        if read is None:
            raise ValueError
        return read(value, type_)
    except (ValueError, ArithmeticError, TypeError, struct.error) as error:
        raise InvalidInputError(f"{came(value)} is no value of partition key '{name}' of type {type_}") from error


def check_written(schema: PaimonSchema, given: Mapping[str, Any]) -> None:
    """Check values of partition keys that people have written, to whom a date is no number.

    Raises:
        InvalidInputError: as `partition_values`; or a number for a date or a time, such as 20260101.
    """
    partition_values(schema, given)
    for name, value in given.items():
        type_ = schema.field(name).type
        if isinstance(value, int) and type_.root in _EXAMPLES:
            raise InvalidInputError(
                f"{came(value)} is no value of partition key '{name}' of type {type_}, expected {_EXAMPLES[type_.root]}"
            )


def _text(value: Any, type_: PaimonType) -> str:
    if not isinstance(value, str):
        raise ValueError
    return value


def _boolean(value: Any, type_: PaimonType) -> bool:
    if isinstance(value, bool):
        return value
    found = {"true": True, "false": False}.get(_text(value, type_).strip().lower())
    return _refuse() if found is None else found


def _integer(value: Any, type_: PaimonType) -> int:
    number = _whole(value)
    limit = 1 << (_BITS[type_.root] - 1)
    return number if -limit <= number < limit else _refuse()


def _whole(value: Any) -> int:
    return int(value) if isinstance(value, (int, str)) and not isinstance(value, bool) else _refuse()


def _float(value: Any, type_: PaimonType) -> float:
    number = float(value) if not isinstance(value, bool) else _refuse()
    if type_.root == "DOUBLE":
        return number
    single: float = struct.unpack("<f", struct.pack("<f", number))[0]
    return single


def _decimal(value: Any, type_: PaimonType) -> Decimal:
    try:
        exact = Decimal(str(value))
        result = exact.quantize(Decimal((0, (1,), -type_.scale)), context=_WIDE)
    except InvalidOperation as error:
        raise ValueError from error
    return result if result == exact and not isinstance(value, bool) else _refuse()


def _date(value: Any, type_: PaimonType) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    day = value if isinstance(value, dt.date) else dt.date.fromisoformat(str(value).strip())
    return day.toordinal() - _EPOCH_DAY


def _time(value: Any, type_: PaimonType) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    time = value if isinstance(value, dt.time) else dt.time.fromisoformat(str(value).strip())
    return ((time.hour * 60 + time.minute) * 60 + time.second) * 1_000_000 + time.microsecond


def _timestamp(value: Any, type_: PaimonType) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    moment = value if isinstance(value, dt.datetime) else dt.datetime.fromisoformat(str(value).strip())
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=dt.UTC)
    elif type_.root == "TIMESTAMP":  # a wall clock: a zone would have to be chosen for it
        _refuse()
    micros = (moment - _EPOCH) // dt.timedelta(microseconds=1)
    nanos = 0 if isinstance(value, dt.datetime) else _beyond_micros(str(value))
    if type_.precision > 6:
        return micros * 1000 + nanos
    return _refuse() if nanos else micros


def _beyond_micros(text: str) -> int:
    """Return the nanoseconds of a time beyond its microseconds, which Python ignores."""
    found = re.search(r"[.,]\d{6}(\d+)", text)
    digits = found[1].rstrip("0") if found else ""
    return _refuse() if len(digits) > 3 else int(f"{digits:0<3}")


def _bytes(value: Any, type_: PaimonType) -> bytes:
    return value if isinstance(value, bytes) else bytes.fromhex(_text(value, type_).removeprefix("0x"))


def _refuse() -> NoReturn:
    raise ValueError


_READERS: dict[str, Callable[[Any, PaimonType], Any]] = {
    **dict.fromkeys(_BITS, _integer),
    **{"BOOLEAN": _boolean, "FLOAT": _float, "DOUBLE": _float, "DECIMAL": _decimal, "CHAR": _text, "VARCHAR": _text},
    **{"DATE": _date, "TIME": _time, "TIMESTAMP": _timestamp, "TIMESTAMP_LTZ": _timestamp},
    **{"BINARY": _bytes, "VARBINARY": _bytes},
}
