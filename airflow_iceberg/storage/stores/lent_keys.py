"""Credentials among the properties of a store that end: when they do, and which of them belong together.

Servers write times in many ways. One that cannot be read is an unknown one: the credentials are used, and renewed
when the store says that they have ended.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping
from decimal import Decimal

from airflow_iceberg.storage.addresses import warn_once

# When a credential expires, in milliseconds since the epoch: "s3.session-token-expires-at-ms",
# "gcs.oauth2.token-expires-at", "adls.sas-token-expires-at-ms.<account>".
_EXPIRES = re.compile(r"expires-at(-ms)?(\.|$)")
_NUMBER = re.compile(r"[+-]?[0-9]{1,40}(\.[0-9]{0,40})?([eE][+-]?[0-9]{1,2})?")
_LONGEST_TEXT = 100
# As milliseconds these are times before 1973, as seconds those of credentials that exist.
_SECONDS_FROM, _SECONDS_TO = 10**9, 10**11
_LAST_MS = 253_402_300_799_000  # the end of the year 9999

# For each kind of store: the names of what makes one identity, and those of its expiry. After a name of Azure's may
# come an account: "adls.sas-token.lake.dfs.core.windows.net".
# That nobody signs is an identity, too: that of everybody.
_ANONYMOUS = "s3.anonymous"
_S3_KEYS = ("s3.access-key-id", "s3.secret-access-key", "s3.session-token", _ANONYMOUS)
_KINDS = (
    (_S3_KEYS, ("s3.session-token-expires-at-ms",)),
    (("gcs.oauth2.token", "gcs.token"), ("gcs.oauth2.token-expires-at",)),
    (("adls.sas-token", "adls.token"), ("adls.sas-token-expires-at-ms", "adls.token-expires-at-ms")),
)


def expires_ms(properties: Mapping[str, str], prefix: str = "") -> int | None:
    """Return when the first of the credentials below a prefix expires, or None if that is not known.

    Returns:
        Milliseconds since the epoch, between 1 and the end of the year 9999.
    """
    times = [
        time
        for key, value in properties.items()
        if key.startswith(prefix) and _EXPIRES.search(key) and (time := _time_ms(key, value)) is not None
    ]
    return min(times, default=None)


def _time_ms(name: str, text: str) -> int | None:
    """Return the time in a text: a number of milliseconds or seconds, or an ISO time; None if it has none."""
    text = text.strip()
    found = None if len(text) > _LONGEST_TEXT else _number_ms(text) if _NUMBER.fullmatch(text) else _iso_ms(text)
    if found is not None and 0 < found <= _LAST_MS:
        return found
    if text and found != 0:
        warn_once("expiry", name, "%s is not a time that can be read: the credentials count as without an expiry", name)
    return None


def _number_ms(text: str) -> int:
    number = Decimal(text)
    if _SECONDS_FROM <= number < _SECONDS_TO:
        number *= 1000
    # Before it becomes an integer: "1e99" has a hundred digits.
    return int(min(max(number, Decimal(-1)), Decimal(_LAST_MS + 1)))


def _iso_ms(text: str) -> int | None:
    try:
        found = dt.datetime.fromisoformat(text)
        zoned = found if found.tzinfo is not None else found.replace(tzinfo=dt.UTC)
        return int(zoned.timestamp() * 1000)
    except (ValueError, OverflowError):
        return None


def replaced_keys(older: Mapping[str, str], newer: Mapping[str, str]) -> dict[str, str]:
    """Return properties with newer ones in their place.

    Keys, session token and expiry are one: none of the older ones stays beside a newer one of the same store, and an
    expiry without keys says nothing about the older keys. Those of other accounts of Azure stay. That nobody signs the
    requests to S3 counts as a key: it does not stay beside newer keys, nor older keys beside it. Where both come
    together the keys count, as for Iceberg Java, which knows nothing else.
    """
    kept, added = dict(older), dict(newer)
    for keys, expiry in _KINDS:
        own = {name: value for name, value in newer.items() if _is_key(name, value)}
        accounts = {account for name in own if (account := _account(name, keys)) is not None}
        if accounts:
            kept = {name: value for name, value in kept.items() if _stays(_account(name, (*keys, *expiry)), accounts)}
        else:
            added = {name: value for name, value in added.items() if _account(name, expiry) is None}
    if all(newer.get(name) for name in _S3_KEYS[:2]) and _is_key(_ANONYMOUS, newer.get(_ANONYMOUS, "")):
        del added[_ANONYMOUS]
    return {**kept, **added}


def _is_key(name: str, value: str) -> bool:
    return value.strip().lower() == "true" if name == _ANONYMOUS else bool(value)


def merged(*ranked: Mapping[str, str]) -> dict[str, str]:
    """Return properties of several places, the later ones before the earlier ones, as `replaced_keys`."""
    found: dict[str, str] = {}
    for each in ranked:
        found = replaced_keys(found, each)
    return found


def _account(name: str, known: tuple[str, ...]) -> str | None:
    """Return the account for which a property is, "" for all of them; None if it is none of the known ones."""
    for each in known:
        if name == each:
            return ""
        if name.startswith(f"{each}.") and each.startswith("adls."):
            return name.removeprefix(f"{each}.").partition(".")[0].lower()
    return None


def _stays(account: str | None, newer: set[str]) -> bool:
    """Tell whether an older property stays beside newer keys: no key, or one of another account, if all say whose."""
    return account is None or (account != "" and "" not in newer and account not in newer)
