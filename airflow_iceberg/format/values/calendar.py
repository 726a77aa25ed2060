"""Days, times and instants as integers: the proleptic Gregorian calendar by integer arithmetic, and ISO 8601 text.

Python's `datetime` is limited to the years 1 to 9999 and microseconds; Iceberg's int and long have a larger range, and
version 3 has nanoseconds. All functions take plain ints, `civil_from_days` also numpy arrays of int64.
"""

import re
from typing import Any

MICROS_PER_SECOND = 1_000_000
NANOS_PER_SECOND = 1_000_000_000
SECONDS_PER_HOUR = 3_600
SECONDS_PER_DAY = 86_400
EPOCH_YEAR = 1970

# The calendar repeats every 400 years; day 0 of an era is the first of March, so that a leap day ends a year.
_DAYS_PER_ERA = 146_097
_EPOCH_IN_ERAS = 719_468

_DATE = re.compile(r"([+-]?\d{4,9})-(\d\d)-(\d\d)", re.ASCII)
_TIME = re.compile(r"(\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?", re.ASCII)
_OFFSET = re.compile(r"\s?([Zz]|UTC|[+-]\d\d(?::?\d\d(?::?\d\d)?)?)$", re.ASCII)


def civil_from_days(days: Any) -> tuple[Any, Any, Any]:
    """Return year, month (1–12) and day (1–31) of days since 1970-01-01; ints or numpy arrays, as `days` is."""
    shifted = days + _EPOCH_IN_ERAS
    era = shifted // _DAYS_PER_ERA
    day_of_era = shifted - era * _DAYS_PER_ERA
    leap_days = day_of_era // 1_460 - day_of_era // 36_524 + day_of_era // 146_096
    year_of_era = (day_of_era - leap_days) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month_from_march = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * month_from_march + 2) // 5 + 1
    after_december = month_from_march // 10
    month = month_from_march + 3 - 12 * after_december
    return year_of_era + era * 400 + after_december, month, day


def days_from_civil(year: int, month: int, day: int) -> int:
    """Return the days since 1970-01-01 of a date, which is not checked."""
    year -= month <= 2
    era = year // 400
    year_of_era = year - era * 400
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    day_of_era = year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year
    return era * _DAYS_PER_ERA + day_of_era - _EPOCH_IN_ERAS


def months_from_days(days: Any) -> Any:
    """Return the months since January 1970 of days since the epoch; floor, so December 1969 is −1."""
    year, month, _ = civil_from_days(days)
    return (year - EPOCH_YEAR) * 12 + month - 1


def years_from_days(days: Any) -> Any:
    """Return the years since 1970 of days since the epoch; floor, so 1969 is −1."""
    return civil_from_days(days)[0] - EPOCH_YEAR


def format_date(days: int) -> str:
    """Return a date as ISO 8601; years after 9999 have a plus sign, as in Java."""
    year, month, day = civil_from_days(days)
    return f"{_format_year(year)}-{month:02}-{day:02}"


def format_time(micros: int) -> str:
    """Return a time of day with seconds and no more digits of the fraction than necessary."""
    return _format_time_of_day(micros, MICROS_PER_SECOND)


def format_timestamp(units: int, per_second: int) -> str:
    """Return date and time as ISO 8601 with ``T``, without an offset, of units since the epoch."""
    days, rest = divmod(units, per_second * SECONDS_PER_DAY)
    return f"{format_date(days)}T{_format_time_of_day(rest, per_second)}"


def parse_date(text: str) -> int:
    """Return the days since the epoch of an ISO 8601 date.

    Raises:
        ValueError: not a date of the calendar.
    """
    found = _DATE.fullmatch(text)
    if not found:
        raise ValueError("expected a date like 2017-11-16")
    date = int(found[1]), int(found[2]), int(found[3])
    days = days_from_civil(*date)
    if civil_from_days(days) != date:
        raise ValueError("no such day in the calendar")
    return days


def parse_time(text: str, per_second: int = MICROS_PER_SECOND) -> int:
    """Return the units since midnight of a time like 22:31:08.5; the seconds may be missing.

    Raises:
        ValueError: not a time of day, or more digits than the unit holds.
    """
    found = _TIME.fullmatch(text)
    if not found:
        raise ValueError("expected a time like 22:31:08.000001")
    hours, minutes, seconds = int(found[1]), int(found[2]), int(found[3] or 0)
    if hours > 23 or minutes > 59 or seconds > 59:
        raise ValueError("no such time of day")
    fraction, lost = divmod(int((found[4] or "0").ljust(9, "0")), NANOS_PER_SECOND // per_second)
    if lost:
        raise ValueError("more digits of the second than the type holds")
    return (hours * SECONDS_PER_HOUR + minutes * 60 + seconds) * per_second + fraction


def parse_timestamp(text: str, per_second: int) -> tuple[int, int | None]:
    """Return the units since the epoch of an ISO 8601 timestamp, and its offset in seconds or None.

    The units are an instant when there is an offset, else local time. ``T`` may be a space; a date is its midnight.

    Raises:
        ValueError: not a timestamp.
    """
    date, separator, rest = text.replace("t", "T").replace(" ", "T", 1).partition("T")
    days = parse_date(date)
    if not separator:
        return days * SECONDS_PER_DAY * per_second, None
    found = _OFFSET.search(rest)
    time = rest[: found.start()] if found else rest
    offset = _offset_seconds(found[1]) if found else None
    units = days * SECONDS_PER_DAY * per_second + parse_time(time, per_second)
    return units - (offset or 0) * per_second, offset


def _offset_seconds(text: str) -> int:
    if text in ("Z", "z", "UTC"):
        return 0
    digits = text[1:].replace(":", "").ljust(6, "0")
    hours, minutes, seconds = int(digits[:2]), int(digits[2:4]), int(digits[4:])
    if hours > 18 or minutes > 59 or seconds > 59:
        raise ValueError("no such offset")
    total = hours * SECONDS_PER_HOUR + minutes * 60 + seconds
    return -total if text[0] == "-" else total


def _format_year(year: int) -> str:
    if year > 9999:
        return f"+{year}"
    return f"-{-year:04}" if year < 0 else f"{year:04}"


def _format_time_of_day(units: int, per_second: int) -> str:
    seconds, fraction = divmod(units, per_second)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    text = f"{hour:02}:{minute:02}:{second:02}"
    if not fraction:
        return text
    width = len(str(per_second)) - 1
    return f"{text}.{str(fraction).rjust(width, '0').rstrip('0')}"
