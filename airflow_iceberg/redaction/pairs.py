"""Secrets that a name tells of: a name of a secret, a sign between, and the value, in whatever notation.

The same grammar for properties and URLs (`password=x`), JSON, Python and YAML (`"password": "x"`, block scalars),
Scala and Ruby (`->`, `=>`), ODBC (`Pwd={x}`), and headers (`X-Api-Key: x`, `Authorization: Digest …`). Not here: names
and values in other places, such as two elements of XML (`couples`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from airflow_iceberg.redaction.names import is_kept, is_secret
from airflow_iceberg.redaction.words import (
    is_call,
    is_digest,
    is_placeholder,
    is_type,
    is_variable,
    is_word,
    looks_random,
)

Span = tuple[int, int]

# In names with blanks, "secret access key"; the last word is one of any name.
_BEFORE = (
    r"(?i:(?:access|account|api|private|shared|secret|client|connection|signing|encryption|master|storage|session|consumer"
    r"|auth|security|refresh|bearer|user|db|database|login|admin|root|service|webhook)[ \t])"
)
# Logs for terminals have colours.
_COLOUR = r"(?:\x1b\[[\d;]{0,20}m)*+"
# Each character is read once, since a name begins where no other does and gives nothing back.
_NAMED = (
    rf"(?<![\w.-])(?:-D|--?)?((?:{_BEFORE}){{0,3}}+[\w.-]++)(?:\[[\w ]{{0,20}}\])?[\\'\"`\]*]*+{_COLOUR}\s*+"
    r"(?=:=|[=:：]|->)"
)
# A quoted value. Each quote that opens one ends the one before, so that no text is read for each of its names.
_LONGEST = 65536
_QUOTED = (
    r"(?:[bBuUrRfFN]{1,2})?(?:"
    rf"\"\"\"(.{{0,{_LONGEST}}}?)\"\"\"|'''(.{{0,{_LONGEST}}}?)'''"
    rf"|\"((?:[^\"\\]|\\.){{0,{_LONGEST}}}+)\"|'((?:[^'\\]|\\.|''){{0,{_LONGEST}}}+)'"
    rf"|`([^`]{{0,{_LONGEST}}}+)`|[“„«]([^“„«”»]{{0,{_LONGEST}}}+)[”»“]|‘([^‘’]{{0,{_LONGEST}}}+)’)"
)
_SCHEMES = r"(?:(?i:bearer|basic|token|apikey|negotiate|ssws|ntlm|dpop)[ \t]++)?"
# A comma ends a value, unless more of it follows; a quote does; so does a line break that is written as `\n` before
# another pair.
_SIGN = (
    r"(?:[^\s:;&,'\"\\<]|:(?!\s|$)|<(?!/)|,(?!\s|[\w.-]{1,100}=|$)|(?<=\w)['\"](?=\w)"
    r"|\\(?!\\{0,20}['\"]|(?:r\\)?[nr](?:[\w.-]{1,60}[:=\"']|\s|$|\\)))"
)
# One that is long is read to its end only if it is a secret.
_BARE = rf"{_SCHEMES}[\\'\"]{{0,20}}+({_SIGN}{{1,1024}}+)"
# What goes on behind a bracket is no list, but a value that begins with one.
_NO_MORE = r"(?![^\s,;&)\]}>'\"`\\.|:<])"
_BRACES = rf"\{{((?:[^}}]|\}}\}}){{1,4096}}+)\}}{_NO_MORE}"
_OF_EQUALS = rf"(?s)(?::?=>?(?!=)|->)\s*+(?:{_QUOTED}|{_BRACES}|{_BARE})"
_OF_COLON = rf"(?s)[:：]\**\s*+(?:{_QUOTED})"
_BARE_OF_COLON = rf"[:：]\**(?:[ \t]++|(?=[{chr(0x22)}'])|\s*\n[ \t]++)(?![\[{{(])(?:[!&]\w+\s+)?{_BARE}"
# With a colon a blank is needed before a bare value: "host:port" and "name:version" are no pairs.
_CLOSE_BY = r"[:：]\[?([^\s;&,:'\"<>\[\](){}]{6,}+)"
_LIST = rf"(?:[:：=]|=>|->)\s*+[\[({{]([^\[\](){{}}]{{0,{_LONGEST}}}+)[\])}}]{_NO_MORE}"
# With a type between, in the source of a program: `password: str = "x"`.
_TYPED = rf"(?s):\s?[A-Za-z_][\w.\[\]| ]{{0,60}}=\s?{_QUOTED}"
_BLOCK = r"[:：][ \t]*[|>][+-]?\d?[+-]?[ \t]*(?:#[^\n]*)?\n"
_REST_OF_LINE = r"[:：][ \t]+([^\n\r]{1,4096})"
_HEADER_NAME = r"(?i)(?:^|[-_.])(?:authorization|(?:set-)?cookie2?)$"
_HEADER_VALUE = r"[:：]\s*"
_KNOWN_SCHEME = r"(?i)(bearer|basic|token|apikey|negotiate|ntlm|ssws|dpop|kerberos|gssapi|splunk|key)[ \t]+"
_NAMED_STRONGLY = (
    r"(?i)passw|passphrase|passcode|pass$|pwd|(?:access|account|api|private|shared|signing|master|storage|fernet|secret"
    r"|subscription|functions|encryption|consumer).{0,2}(?:access.{0,2})?key|x-|client.?secret|connection.?string"
)
# Words that only begin like secrets.
_OTHER_WORDS = r"(?i)tokeni[zs]e|secretar|passenger|passive|authoring"
_CLOSING = "}])"


def pair_spans(text: str) -> Iterator[Span]:
    """Yield where the values of secrets are."""
    position = 0
    named, text_end = re.compile(_NAMED), len(text)
    while position < text_end and (found := named.search(text, position)) is not None:
        position = found.end()
        if not is_secret(found[1]) or re.search(_OTHER_WORDS, found[1]):
            continue
        for start, end in _values(text, found):
            yield start, end
            position = max(position, end)


def _values(text: str, named: re.Match[str]) -> Iterator[Span]:
    name, sign, at = named[1], text[named.end()], named.end()
    is_colon = sign in ":：" and not text.startswith(":=", at)
    if is_colon and re.search(_HEADER_NAME, name):
        yield from _header(text, named)
        return
    listed = re.compile(_LIST).match(text, at)
    if listed is not None and (is_colon or not listed[0].endswith("}")):
        yield from _items(name, listed)
        return
    quoted = re.compile(_OF_COLON if is_colon else _OF_EQUALS).match(text, at)
    if quoted is not None:
        group = quoted.lastindex or 0
        value = quoted[group]
        if group <= 7:
            yield from _quoted(name, value, quoted.start(group))
        elif is_pair(name, value) and not is_placeholder(value) and not is_variable(name, value):
            yield quoted.start(group), _end_of_bare(text, quoted.end(group)) if group > 8 else quoted.end(group)
    elif is_colon and (typed := re.compile(_TYPED).match(text, at)) is not None:
        group = typed.lastindex or 0
        if not is_word(typed[group]):
            yield from _quoted(name, typed[group], typed.start(group))
    elif is_colon:
        yield from _after_colon(text, named)


def _quoted(name: str, value: str, start: int) -> Iterator[Span]:
    if is_placeholder(value) or not is_pair(name, value):
        return
    proof = re.match(_KNOWN_SCHEME, value)
    if proof is not None and re.search(_HEADER_NAME, name):
        start, value = start + proof.end(), value[proof.end() :]
    yield start, start + len(value)


def is_pair(name: str, value: str) -> bool:
    """Whether the value of a pair is a secret, also with brackets around the pair."""
    return is_kept(name, value) and is_kept(name, value.rstrip(_CLOSING))


def _items(name: str, listed: re.Match[str]) -> Iterator[Span]:
    """Yield the elements of a list of secrets, or the values of an object of them."""
    is_object = listed[0].endswith("}") or re.search(r"\w['\"]?\s*[:=]", listed[1]) is not None
    inner = r"[:=]>?\s*" if is_object else ""
    any_quoted = False
    for each in re.compile(rf"(?s){inner}{_QUOTED}").finditer(listed.string, *listed.span(1)):
        any_quoted = True
        value = each[each.lastindex or 0]
        if is_kept(name, value) and not is_placeholder(value) and (not is_object or is_random(value)):
            yield each.span(each.lastindex or 0)
    if not any_quoted and not is_object:
        for each in re.compile(r"[^\s,]++").finditer(listed.string, *listed.span(1)):
            if is_random(each[0]) and not is_type(each[0]) and is_kept(name, each[0]):
                yield each.span()


def _after_colon(text: str, named: re.Match[str]) -> Iterator[Span]:
    """Yield a value without quotes after a colon, which may be one of a sentence."""
    name, at = named[1], named.end()
    block = re.compile(_BLOCK).match(text, at)
    if block is not None:
        yield from _block(text, named.start(), block.end())
        return
    is_strong = re.search(_NAMED_STRONGLY, name) is not None
    bare = re.compile(_BARE_OF_COLON).match(text, at)
    if bare is None:
        close = re.compile(_CLOSE_BY).match(text, at)
        if close is not None and _is_close_secret(name, close[1]):
            yield close.span(1)
        return
    value = bare[1]
    if is_placeholder(value) or is_type(value) or not is_pair(name, value):
        return
    is_own_line = _begins_line(text, named.start())
    rest = re.compile(_REST_OF_LINE).match(text, at)
    if rest is not None and is_own_line and not is_word(value) and not is_call(value):
        words = rest[1].partition(" #")[0].rstrip(" \t,")
        following = words.split()[1:2]
        is_sentence = following and is_word(following[0]) and is_random(value)
        if not is_sentence and (not following or is_strong or is_random(value)):
            yield bare.start(1), max(rest.start(1) + len(words), bare.end(1))
            return
    if is_word(value) and not is_random(value):
        return
    is_contained = text[max(0, named.start() - 40) : named.start()].rstrip(" \t\"'`").endswith(("{", ",", ";", "("))
    if is_strong or is_random(value) or (is_contained and not is_call(value)):
        number = re.fullmatch(r"([0-9.]+)[}\])]+", value)
        end = _end_of_bare(text, bare.end(1)) if number is None else bare.start(1) + len(number[1])
        yield bare.start(1), end


def _end_of_bare(text: str, end: int) -> int:
    further = re.compile(f"{_SIGN}++").match(text, end)
    return end if further is None else further.end()


def _is_close_secret(name: str, value: str) -> bool:
    if not re.search(_NAMED_STRONGLY, name) and not re.search("(?i)token|secret", name):
        return False
    return len(value) >= 6 and is_random(value) and not re.match(r"v?\d+\.", value) and is_pair(name, value)


def is_random(value: str) -> bool:
    """Whether what stands after the name of a secret looks like one: also a digest, whose form many tokens have."""
    return looks_random(value) or is_digest(value)


def _begins_line(text: str, start: int) -> bool:
    before = text[max(0, start - 40) : start]
    return re.search(r"(?:^|[\n\r])[\s>|#+*\"'`\[-]*$", before if start > 40 else f"\n{before}") is not None


def _block(text: str, name: int, start: int) -> Iterator[Span]:
    """Yield the lines of a block scalar: all that are indented more than the line of its name."""
    line = text.rfind("\n", max(0, name - 200), name) + 1
    indent = len(text[line:name]) - len(text[line:name].lstrip(" -"))
    first = end = None
    position = start
    while position < len(text):
        after = text.find("\n", position)
        after = len(text) if after < 0 else after
        content = text[position:after]
        if content.strip():
            if len(content) - len(content.lstrip()) <= indent:
                break
            first = position + len(content) - len(content.lstrip()) if first is None else first
            end = after
        position = after + 1
    if first is not None and end is not None:
        yield first, end


def _header(text: str, named: re.Match[str]) -> Iterator[Span]:
    """Yield the value of a header without its scheme: to the end of the line, or to the quote that opened it."""
    value = re.compile(_HEADER_VALUE).match(text, named.end())
    start = named.end() if value is None else value.end()
    opened = re.compile(_QUOTED, re.DOTALL).match(text, start)
    if opened is not None:
        yield from _quoted(named[1], opened[opened.lastindex or 0], opened.start(opened.lastindex or 0))
        return
    begun = text[start : start + 100]
    if is_word(begun) and not re.match(_KNOWN_SCHEME, begun):
        return
    before = text[max(0, named.start() - 1) : named.start()]
    ends = r"[\r\n]|\\r\\n|\\n" + (f"|{before}" if before in ("'", '"') else "")
    stop = re.compile(ends).search(text, start, start + 8192)
    end = min(len(text), start + 8192) if stop is None else stop.start()
    end = start + len(text[start:end].rstrip(" \t]})"))
    if text[start:end].count(text[end - 1]) == 1 and text[end - 1] in "\"'":  # of a text around it
        end -= 1
    scheme = re.compile(_KNOWN_SCHEME).match(text, start, end)
    if scheme is not None:
        token = re.compile(r"[^\s'\"\\,;]+").match(text, scheme.end(), end)
        if token is not None and "=" not in token[0].rstrip("=") and text[token.end() : token.end() + 1] != '"':
            if not is_word(token[0]) or is_random(token[0]):
                yield token.span()
            return
        start = scheme.end()
    elif is_placeholder(text[start:end]):
        return
    elif "cookie" not in named[1].lower():
        known = re.compile(r"[A-Za-z][\w-]*[ \t]+(?=\S)").match(text, start, end)
        start = start if known is None else known.end()
        if not is_random(text[start:end]) and " " in text[start:end].strip():
            return
    if end > start:
        yield start, end
