"""Secrets whose names stand in another place than before a sign: in elements, in options, in the element before.

XML (`<password>x</password>`), Hadoop's configuration (`<name>…</name><value>…</value>`), objects of a name and a
value, tuples, lists of arguments (`["--password", "x"]`), command lines (`--password x`), SQL (`IDENTIFIED BY 'x'`),
tables of values with a line of names, and sentences ("the password is x").
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from airflow_iceberg.redaction.names import is_kept, is_secret
from airflow_iceberg.redaction.words import is_call, is_digest, is_placeholder, is_type, is_word, looks_random

Span = tuple[int, int]

_QUOTED = r"(?:[bBuUrR]{1,2})?(?:\"((?:[^\"\\]|\\.){1,65536}+)\"|'((?:[^'\\]|\\.|''){1,65536}+)'|`([^`]{1,65536}+)`)"
_ELEMENT = r"<([\w.:-]{1,100}+)(?:\s[^<>]{0,500}+)?>\s*+(?:<!\[CDATA\[)?([^<\]]{1,65536}+)"
# A name in the place of a value; then, in the same object, the value.
_NAMES = (
    r"(?i)(?<![\w.-])(?:name|key|property|prop|header|param(?:eter)?(?:_?name)?|option|variable|var|field|k|id|setting|config)"
    r"[\\'\"`]*\s*[=:>]\s*[\\'\"`]*\s*([\w.-]{1,200}+)[\\'\"`]*"
)
_VALUE = (
    r"(?is)(?:[^{}]{0,300}?(?<![\w.-])(?:(?:new|old)?_?value|val|v|content|text)[\\'\"`]*\s*+(?:[=:]\s*+(?:"
    rf"{_QUOTED}|[\\'\"`]*([^\s,;&'\"}}<>]++))|>\s*+(?:<!\[CDATA\[)?([^<\]]{{1,65536}}+))|[^<>{{}}]{{0,300}}?>\s*([^<\s][^<]{{0,65536}}))"
)
_VALUE_BEFORE = (
    r"(?is)(?<![\w.-])(?:(?:new|old)?_?value|val|v|content|text)[\\'\"`]*\s*[=:>]\s*"
    r"(?:\"([^\"]{1,4096})\"|'([^']{1,4096})'|([^\s,;&'\"}<>]{1,4096}))[^{}]{0,100}$"
)
_TUPLE = rf"(?s)[\[(]\s*[bu]?['\"]([\w. -]{{1,100}}+)['\"]\s*,\s*{_QUOTED}\s*,?\s*[\])]"
_ARGUMENT = (
    r"(?s)(?<![\w-])--?([\w.-]{1,100}+)(?:['\"`]\s*,?\s*|[ \t]+(?:\\\s+)?)"
    rf"(?:{_QUOTED}|(?!-)([^\s'\"`,;&|)\]<>]++))"
)
_SQL = (
    rf"(?is)(?<![\w.-])(?:identified\s+(?:with\s+\S+\s+)?by(?:\s+password)?|(?:with\s+|encrypted\s+)?passw(?:or)?d|passphrase"
    rf"|[\w.-]{{0,60}}(?:[._-](?:key|token|secret|password)|credentials|connection_string"
    rf"|(?-i:[a-z](?:Key|Token|Secret|Password)))"
    rf"|(?-i:SECRET|TOKEN|BEARER_TOKEN|KEY_ID|CREDENTIAL))\s+(?:to\s+)?{_QUOTED}"
)
_SENTENCE = (
    r"(?i)(?<![\w.-])((?:passw(?:or)?d|passphrase|passcode|pwd|secret|token|api[ _-]?key|access[ _-]?key|requirepass"
    r"|masterauth)s?)"
    r"(?:[ \t]{1,3}(?:is|was|of|to|as|value|=>?)(?:[ \t]{1,3}(?:now|set|to))?)?[ \t]{1,3}([^\s'\"]{5,1024})"
)
# "password for me: x", "the password of user me is x", "password set to 'x'"
_TOLD = (
    r"(?i)(?<![\w.])((?:passw(?:or)?d|passphrase|passcode|pwd|secret|token|api[ _-]?key|access[ _-]?key)s?)[ \t]"
    r"(?:(?:for|of)(?:[ \t]user)?[ \t][\w.@-]{1,64}(?:[ \t](?:is|was)|:)|(?:is|was|(?:set|changed|reset)[ \t]to):?)"
    r"[ \t]['\"]?([^\s'\"]{5,1024})"
)
_CALL = (
    r"(?i)(?<![a-z])(?:set|with|add|put)?_?((?:\w{0,20}_?)(?:passw(?:or)?d|secret(?:_?key)?|token|api_?key|pwd|access_?key))"
    rf"\(\s{{0,20}}{_QUOTED}"
)
_ATTRIBUTE = (
    r"<([\w.:-]{1,100}+)(?:\s[^<>]{0,200}?)?\s(?:value|data|val)\s*=\s*(?:\"([^\"]{1,65536}+)\"|'([^']{1,65536}+)')"
)
# A line of a name and a value: "spark.x.password  y", "password,y", "password|y".
# Also as a row of a table: "| password | y |".
_ROW = (
    r"(?m)^[ \t]*(?:[|│┃][ \t]*)?[\"'`]?([\w.-]{2,200}+)[\"'`]?(?:[ \t]*[,|;\t│┃][ \t]*|[ \t]+)"
    r"[\"'`]?([^\s\"'`|]{5,4096}+)[\"'`]?[ \t]*(?:[|│┃][^\n]{0,4096})?$"
)
# As Spark prints its settings: "(spark.x.password,y)".
_BARE_TUPLE = r"(?:(?<!\w)|(?<=List)|(?<=Tuple2))\(([\w.-]{2,200}+),[ ]?([^\s'\"(),]{5,4096}+)\)"
# Two cells of HTML, or an element of a name and one of a value in a list of properties.
_CELLS = (
    r"<(?:td|th|dt|key|b|strong|code)(?:\s[^<>]{0,200}+)?>\s*+([\w. -]{1,100}+)</\w{1,10}>\s*+"
    r"<\w{1,10}(?:\s[^<>]{0,200}+)?>\s*+([^<]{5,4096}+)"
)
# Settings have no snapshot ids and no digests for values, as tables and files may.
_SETTING = r"(?i)(?:spark|fs|dfs|hadoop|hive|yarn|javax|s3|adls|gcs|iceberg)\."
_SCHEME = r"(?i)(?:bearer|basic|token|apikey)[ \t]+"
_LINE = re.compile(r"[^\n]+")
_NEAR = 600
_DELIMITERS = "\t|;,"
_LONGEST_ROW = 4096


def couple_spans(text: str) -> Iterator[Span]:
    """Yield where the values of secrets are."""
    if "<" in text:
        yield from _elements(text)
    yield from _named_values(text)
    for each in re.finditer(_TUPLE, text):
        group = each.lastindex or 0
        if group > 1 and is_secret(each[1]) and is_kept(each[1], each[group]) and _is_value(each[group]):
            scheme = re.match(_SCHEME, each[group])
            yield each.start(group) + (0 if scheme is None else scheme.end()), each.end(group)
    if "-" in text:
        yield from _arguments(text)
    for each in re.finditer(_SQL, text):
        is_list = "=" in each[each.lastindex or 0] and "credentials" in each[0].lower()
        name = each[0].split(None, 1)[0]
        if name.lower().endswith("key") and not is_secret(name):  # `write_key 'a'`, `sort_key 'a'`
            continue
        if not is_list and not is_word(each[each.lastindex or 0]) and not is_placeholder(each[each.lastindex or 0]):
            yield each.span(each.lastindex or 0)
    for pattern in (_SENTENCE, _TOLD):
        yield from (each.span(2) for each in re.finditer(pattern, text) if _is_told(each))
    yield from _lines_and_calls(text)
    yield from _columns(text)


def _lines_and_calls(text: str) -> Iterator[Span]:
    for each in re.finditer(_ROW, text):
        name, value = each[1], each[2].rstrip(",;")
        is_setting = re.match(_SETTING, name) is not None and (is_digest(value) or value.isdigit())
        if is_secret(name) and (is_setting or looks_random(value)) and is_kept(name, value):
            if not is_call(value) and not is_type(value):
                yield each.start(2), each.start(2) + len(value)
    for each in re.finditer(_BARE_TUPLE, text):
        name, value = each[1], each[2]
        is_told = re.match(_SETTING, name) is not None or looks_random(value)
        if is_secret(name) and is_told and is_kept(name, value) and not is_word(value) and not is_placeholder(value):
            yield each.span(2)
    for each in re.finditer(_CELLS, text) if "</" in text else ():
        value = each[2].rstrip()
        if is_secret(each[1]) and looks_random(value) and is_kept(each[1], value):
            yield each.start(2), each.start(2) + len(value)
    for pattern in (_CALL, _ATTRIBUTE) if "(" in text or "<" in text else ():
        for each in re.finditer(pattern, text):
            group = each.lastindex or 0
            is_getter = (
                pattern is _CALL and re.match("(?i)get|find|decode|parse|read|load|check|is_", each[0]) is not None
            )
            if is_secret(each[1]) and not is_getter and looks_random(each[group]) and is_kept(each[1], each[group]):
                yield each.span(group)


def _is_value(value: str) -> bool:
    return looks_random(value) or (not re.fullmatch(r"[a-z_]+", value) and not is_placeholder(value))


def _elements(text: str) -> Iterator[Span]:
    for each in re.finditer(_ELEMENT, text):
        value = each[2].rstrip()
        if is_secret(each[1]) and value and is_kept(each[1], value) and not is_placeholder(value):
            yield each.start(2), each.start(2) + len(value)


def _named_values(text: str) -> Iterator[Span]:
    value_after, value_before = re.compile(_VALUE), re.compile(_VALUE_BEFORE)
    for named in re.finditer(_NAMES, text):
        if not is_secret(named[1]):
            continue
        found = value_after.match(text, named.end())
        if found is None:
            window = max(0, named.start() - _NEAR)
            found = (
                value_before.search(text[window : named.start()]) if _has_value(text, window, named.start()) else None
            )
            shift = window
        else:
            shift = 0
        if found is not None:
            group = found.lastindex or 0
            value = found[group].rstrip()
            if is_kept(named[1], value) and not is_placeholder(value) and not is_type(value):
                yield shift + found.start(group), shift + found.start(group) + len(value)


def _has_value(text: str, start: int, end: int) -> bool:
    near = text[start:end].lower()
    return "val" in near or "content" in near or "text" in near


def _arguments(text: str) -> Iterator[Span]:
    for each in re.finditer(_ARGUMENT, text):
        group = each.lastindex or 0
        name, value = each[1], each[group]
        if not is_secret(name) or not is_kept(name, value) or is_placeholder(value) or is_call(value):
            continue
        is_metavar = value.isupper() and not re.search(r"\d", value)
        if not is_metavar and (group < 5 or not is_word(value)) and not is_type(value):
            yield each.span(group)


def _is_told(each: re.Match[str]) -> bool:
    name, value = each[1].lower(), each[2].rstrip(".,;:!?)")
    if is_placeholder(value) or "://" in value or not looks_random(value) or not is_kept(name, value):
        return False
    is_name = value.endswith("=") and each.string[each.end() : each.end() + 1] in ("'", '"')
    if is_name or re.search(r"[=:(\[<]", value.rstrip("=")) or is_call(value):
        return False
    is_strong = name.startswith(("pass", "pwd", "api", "requirepass", "masterauth"))
    return is_strong or (len(value) >= 16 and re.search(r"\d", value) is not None) or " is " in each[0].lower()


def _columns(text: str) -> Iterator[Span]:
    """Yield the fields of rows below a line of column names, of which some are those of secrets."""
    names: list[str] = []
    sign = ""
    for line in _LINE.finditer(text):
        row = line[0]
        if len(row) > _LONGEST_ROW:
            names = []
            continue
        if names and row.count(sign) == len(names) - 1:
            start = line.start()
            for name, field in zip(names, row.split(sign), strict=True):
                value = field.strip().strip("\"'")
                if name and len(value) > 3 and not re.fullmatch(r"[-=+:]+", value) and is_kept(name, value):
                    begin = start + field.find(value)
                    yield begin, begin + len(value)
                start += len(field) + 1
            continue
        sign, names = _header_of(row)


def _header_of(row: str) -> tuple[str, list[str]]:
    for sign in _DELIMITERS:
        fields = [field.strip().strip("\"'") for field in row.split(sign)] if sign in row else []
        if fields and all(re.fullmatch(r"[A-Za-z][\w .-]{0,60}|", field) for field in fields):
            names = [field if is_secret(field) else "" for field in fields]
            told = [field for field in fields if field]
            if len(told) == 2 and is_secret(told[0]) and looks_random(told[1]):
                return "", []  # a row of a name and its value
            return (sign, names) if any(names) else ("", [])
    return "", []
