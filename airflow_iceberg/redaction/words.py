"""What is no secret though it stands where one would: words of a sentence, types, placeholders, names of variables."""

from __future__ import annotations

import re
from functools import cache

_WORDS = (
    # of sentences about secrets
    "must should may might can cannot could would shall will is are was were be been being not no nor none never always"
    " expected got found missing required requires require invalid empty unknown wrong incorrect unset unsupported"
    " unexpected expired expires expiring given set sets setting use uses using used the a an this that these those it"
    " its to of in on at for from by with without via and or but if when while until unless because since before after"
    " please enter type check see as has have had having does do did done only neither either failed fails fail failing"
    " failure error errors denied refused rejected bad malformed too isn doesn don optional mandatory disabled enabled"
    " default defaults changed rotated mismatch mismatched already still cannot unable ok okay all any each every some"
    " one two both needed needs need provided provide specified specify ignored absent present"
    " available unavailable valid exceeded exceeds longer shorter between than then there here where which who what"
    " how why you your we our they their he she him her access authentication authorization authenticated login logged"
    " kerberos simple basic bearer oauth oauth2 sigv4 google ldap jwt saml plain none"
    # what forms and masks show
    " redacted hidden masked filtered removed secret password passwd token omitted sensitive sealed"
    # types of columns
    " string text str int integer bigint smallint tinyint long number numeric bytes varchar char nvarchar binary"
    " varbinary boolean bool double float real decimal date time timestamp timestamptz timestamp_ntz timestamp_ns uuid"
    " fixed struct list map array object json variant geometry geography column columns field fields value values name"
    " names null nan true false nil undefined yes void byte short datetime interval blob clob tuple dict"
    # keywords of SQL
    " select where order group like between limit as asc desc using join left inner outer"
)
_PLACEHOLDER = (
    r"\$\{[^}]*\}?|\$\([^)]*\)|\$[A-Z_]+|%\(\w*\)?s?|%[sdr]|%[A-Z_]+%|\?|\{\{.*|\{%.*|\{[A-Za-z_]*\}"
    r"|<[A-Za-z_ .-]+>|\*{3,}.*|(?i:x{3,})|\.{3}|…|-+|_+|\[[A-Za-z]*\]|@[A-Za-z_.{}]+@|:[a-z_]+|#\{.*"
    r"|&lt;[A-Za-z_ .-]+&gt;"
)
_TYPE = (
    r"(?i)(?:decimal|fixed|varchar|char|struct|map|list|array|optional|required|binary|timestamp\w{0,10}|numeric"
    r"|nullable)[<(\[ ].*"
)
_DIGEST = r"(?:[sS][hH][aA]\d*[:=-])?(?:[0-9a-f]{7,}|[0-9A-F]{7,})|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_SETTINGS = r"(?:os|self|conf|config|settings|env)\.[a-z_]+\b"
_TIME = r"\d{4}-\d\d(?:-\d\d)?(?:[T ]?\d\d:?\d\d.*)?"


def is_word(value: str) -> bool:
    """Whether a value begins like a sentence, or is a type."""
    found = re.match(r"[('\"`\[]?([A-Za-z_]+\d?)(?![\w@#$%^&*+=~-])", value)
    if found is None:
        return False
    return found[1].lower() in _all_words()


@cache
def _all_words() -> frozenset[str]:
    return frozenset(_WORDS.split())


def is_placeholder(value: str) -> bool:
    """Whether a value stands for another one: `${PASSWORD}`, `%(password)s`, `<password>`, `***`."""
    return re.fullmatch(_PLACEHOLDER, value.strip().rstrip(",;.")) is not None or value.strip() == "***"


def is_type(value: str) -> bool:
    """Whether a value is the type of a column with parameters."""
    return re.match(_TYPE, value) is not None


def is_variable(name: str, value: str) -> bool:
    """Whether a value is code that gives the secret: `password=password`, `token=self._token`, `auth=auth_of(x)`."""
    last = re.escape(re.split(r"[.\s-]", name)[-1])
    pattern = rf"(?i)[*&]?(?:[a-z_]\w*\.)*(?:[a-z]+_)*{last}(?:\(.*|\[.*)?[)\]}},;:.]*"
    return re.fullmatch(pattern, value) is not None or is_call(value)


def is_call(value: str) -> bool:
    """Whether a value is a call of a function, or an item of a variable: `os.environ["X"]`, `get_password(`."""
    code = r"(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:\((?:[a-z_][\w.]*(?:=\w*)?)?\)*|\[\w*\]*)[)\]}},;:.]*"
    return re.fullmatch(code, value) is not None or re.match(_SETTINGS, value) is not None


def is_digest(value: str) -> bool:
    """Whether a value is a digest of at least 32 hexadecimal digits."""
    value = value.strip("'\"`()[]{},;:.!")
    return len(value) >= 32 and re.fullmatch(_DIGEST, value) is not None


def looks_random(value: str) -> bool:
    """Whether a value looks like no word, name, time or digest: of letters and digits, or with signs in it."""
    value = value.strip("'\"`()[]{},;:.!")
    if len(value) < 5 or re.fullmatch(_DIGEST, value) or re.match(_TIME, value):
        return False
    if re.fullmatch(r"\d{6,}", value):
        return True
    has_letter, has_digit = re.search(r"[A-Za-z]", value), re.search(r"\d", value)
    if has_letter and has_digit:
        return True
    has_sign = has_letter and re.search(r"[!#$%^&*+=~@]", value)
    return bool(has_sign or re.search(r"[a-z][A-Z][a-z]{0,20}[A-Z][a-z]?[A-Z]", value))
