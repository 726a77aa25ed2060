"""Secrets of properties: what of a name and its value no log, form, command line or document may show."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import unquote, urlsplit

from airflow_iceberg.redaction.addresses import LOGIN
from airflow_iceberg.redaction.names import is_header, is_kept, is_measure, is_number, is_plain_word, is_secret
from airflow_iceberg.redaction.texts import HIDDEN, spans

# Shorter texts are parts of every other word.
_SHORTEST = 4
# The same for texts in a document without the name of a secret, and for headers of gateways.
_SHORTEST_UNNAMED = 8
_PROOF = r"(?i)^(?:Bearer|Basic|Token|ApiKey)\s+(\S+)$"
_CLOSING = "}])"
# So many secrets in one value are not taken out one by one.
_MOST_SECRETS = 200
_SETTING = r"[\w.-]+"


def hide(name: str, value: Any) -> Any:
    """Return a value for logs and forms: hidden, or without the secrets in it."""
    if isinstance(value, Mapping):
        return {key: hide(f"{name}.{key}", inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        items = list(_hidden_items(name, value))
        return items if isinstance(value, list) else tuple(items)  # classes of their own take other arguments
    if value is None or isinstance(value, bool):
        return value
    text = str(value)
    if is_kept(name, text):
        return HIDDEN
    inner_secrets = secrets_of({name: text})
    if len(inner_secrets) > _MOST_SECRETS:
        return HIDDEN
    inner_secrets = [secret for secret in inner_secrets if secret in text]
    if any(len(secret) < _SHORTEST for secret in inner_secrets):
        return HIDDEN
    return replaced(text, inner_secrets) if inner_secrets else value


def _hidden_items(name: str, values: Iterable[Any]) -> Iterator[Any]:
    """Yield the items of a list, which may be the arguments of a command line: `["--password", "x"]`."""
    option = ""
    for value in values:
        is_value = option and isinstance(value, str | int) and not str(value).startswith("-")
        yield hide(f"{name}.{option}" if is_value else name, value)
        option = _option(value) if isinstance(value, str) else ""


def _option(argument: str) -> str:
    """Return the name of an option whose value is the next argument."""
    named = re.fullmatch(r"--?([A-Za-z][\w.-]*)", argument)
    return named[1] if named is not None and is_secret(named[1]) else ""


def secrets_of(properties: Mapping[str, str]) -> list[str]:
    """Return every text in properties that no log may show, each once: values, and secrets in a value.

    These are the password and the parameters of an address, the key in a connection string, the texts of a JSON
    document, the second half of a credential "id:secret", the token of a header.
    """
    found = (secret for name, value in properties.items() for secret in _secrets_in(name, value))
    return [secret for secret in dict.fromkeys(found) if secret and secret != HIDDEN]


def hidden_texts(properties: Mapping[str, str]) -> list[str]:
    """Return the secrets to hide in messages, the longest first, since one may be a part of another.

    Short ones are left out, since they are parts of other words.
    """
    found: set[str] = set()
    for name, value in properties.items():
        shortest = _SHORTEST if is_secret(name) and not is_header(name) else _SHORTEST_UNNAMED
        found |= {each for each in secrets_of({name: value}) if len(each) >= (shortest if each == value else _SHORTEST)}
    return sorted(found, key=len, reverse=True)


def replaced(text: str, secrets: Iterable[str]) -> str:
    """Return a text with asterisks instead of secrets."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return text


def shown_command(command: Iterable[str]) -> str:
    """Return a command line for a log."""
    shown, option = [], ""
    for argument in command:
        is_value = option and not argument.startswith("-")
        shown.append(str(hide(option, argument)) if is_value else _shown_argument(argument))
        option = _option(argument)
    return " ".join(shown)


def _shown_argument(argument: str) -> str:
    name, value = setting_in(argument)
    return f"{name}={hide(name, value)}" if name else str(hide("", argument))


def setting_in(argument: str) -> tuple[str, str]:
    """Return name and value of an argument of a command line `name=value`; no name and the argument for any other."""
    name, equals, value = argument.partition("=")
    return (name, value) if equals and re.fullmatch(_SETTING, name) else ("", argument)


def _secrets_in(name: str, value: str) -> Iterator[str]:
    if is_kept(name, value):
        yield value
        yield from re.findall(_PROOF, value)
        if name.lower().endswith(("credential", "ugi")):
            # "id:secret", whose second half gives access by itself.
            yield value.partition(":")[2]
    document = _document(value)
    if document is not None:
        with suppress(RecursionError):
            yield from _leaves(name, document, below_secret=is_kept(name, value))
            return
    for start, end in spans(value):
        inner = value[start:end]
        yield from dict.fromkeys((inner, unquote(inner), re.sub(r"\\(.)", r"\1", inner)))
        if len(bare := inner.rstrip(_CLOSING)) >= _SHORTEST:
            yield bare
    for password in _passwords(value):
        yield from dict.fromkeys((password, unquote(password)))


def _document(value: str) -> Any:
    """Return a JSON document, its objects as tuples of pairs, since a name may be in it twice; None if it is none."""
    if value.lstrip().startswith(("{", "[")):
        with suppress(ValueError, RecursionError):
            return json.loads(value, object_pairs_hook=tuple)
    return None


def _leaves(name: str, value: Any, *, below_secret: bool) -> Iterator[str]:
    """Yield the secrets of a document; below the name of a secret these are all long texts."""
    if isinstance(value, tuple):
        told = _told_name(value)
        for key, inner in value:
            known = told if told and key.lower().endswith(("value", "val")) else key
            yield from _leaves(known, inner, below_secret=below_secret or is_secret(known))
    elif isinstance(value, list):
        option = ""
        for inner in value:
            is_value = option and isinstance(inner, str) and not inner.startswith("-")
            yield from _leaves(option if is_value else name, inner, below_secret=below_secret)
            option = _option(inner) if isinstance(inner, str) else ""
        if len(value) == 2 and isinstance(value[0], str) and is_secret(value[0]) and isinstance(value[1], str):
            yield from _leaves(value[0], value[1], below_secret=True)
    elif isinstance(value, str | int | float) and not isinstance(value, bool):
        text = str(value)
        if is_kept(name, text) or (below_secret and _is_unnamed_secret(name, text)):
            # Plain, and in the spelling of a document.
            yield from dict.fromkeys((text, json.dumps(text)[1:-1]))
        for secret in _secrets_in(name, text):
            yield from dict.fromkeys((secret, json.dumps(secret)[1:-1]))


def _told_name(pairs: tuple[tuple[str, Any], ...]) -> str:
    """Return the name that an object has beside its value: `{"name": "password", "value": "x"}`."""
    told = (
        text for key, text in pairs if key.lower() in ("name", "key", "property", "header") and isinstance(text, str)
    )
    return next((name for name in told if is_secret(name)), "")


def _is_unnamed_secret(name: str, value: str) -> bool:
    is_about = is_number(value) and is_measure(name)
    return len(value) >= _SHORTEST_UNNAMED and not is_plain_word(value) and not is_about


def _passwords(text: str) -> Iterator[str]:
    """Yield the possible passwords of an address; the end of one with "@" or "/" is not clear."""
    if "://" in text and "@" in text:
        with suppress(ValueError):
            yield urlsplit(text.removeprefix("jdbc:")).password or ""
        yield from (found["password"] for found in re.finditer(LOGIN, text))


def login_scheme(location: str) -> str | None:
    """Return the scheme of a location that has a user and a password in it; None for all others."""
    found = re.match(LOGIN, location.strip())
    return None if found is None else found["scheme"].lower()


def printable(text: str) -> str:
    """Return a text without control characters: names in a table may be forged to write to a terminal or a log."""
    return "".join(char if char.isprintable() or char == "\n" else "\N{REPLACEMENT CHARACTER}" for char in text)
