"""Which names are those of secrets, and whether a value under such a name is one.

The name is checked first (`s3.secret-access-key`), with wide patterns, since a new kind of key has an unforeseen name.
Then the value: hiding that of a setting that only sounds like a secret (`token-refresh-enabled` is "true",
`oauth2-server-uri` is an address) would hide parts of every log.

Patterns are texts here, compiled when they are first used: a DAG file imports this module and hides nothing.
"""

from __future__ import annotations

import re
from functools import cache

# A pattern with the same meaning in Java and in Python: Spark uses it, too.
STRONG = (
    r"secret|pass(?:w|phrase|code)|(?<![a-z])(?:pwd|ugi)(?![a-z])"
    # DB_PASS, dbpass, PGPASS; not bypass, compass
    r"|(?:key|store|user|db|pg|sql|smtp|mail|root|admin|ldap|bind|ssh|ftp|proxy|cert|login|redis|mongo|app|(?<![a-z]))"
    r"pass(?![a-z])|(?-i:(?<!BY)(?<!COM)(?<!TRES)(?<!SUR)(?<![a-z])PASS(?![A-Za-z]))"
    r"|token|credential|(?<![a-z])creds?(?![a-z])|cookie|bearer|(?<![a-z])(?:sas|sig|jwt|dsn)(?![a-z])"
    r"|(?:access|account|api|private|shared|signing|service|master|sse|storage|fernet|consumer|webhook"
    r"|subscription|functions|decryption|sse.{0,2}c|sse.{0,2}customer).{0,2}key|(?<![a-z])hmac(?![a-z])"
    # environment variables: S3_KEY
    r"|(?-i:(?<!PRIMARY)(?<!PARTITION)(?<!FOREIGN)(?<!SORT)(?<!MESSAGE)_KEY(?![A-Z_]))"
    r"|encryption.{0,2}key(?!.{0,2}(?:id|arn|name))|jaas.{0,2}config|client.{0,2}assertion|saml.{0,2}response|connection.{0,2}string|session.{0,2}kwargs"
    # the parameter of an address of WebHDFS
    r"|^delegation$|airflow.iceberg.storage"
)
# A header of any name may be the key of a gateway.
HEADER = r"(?:^|\.)header\.(?!(?:x-iceberg-access-delegation|accept|content-type|user-agent)$)"
_NAMES = rf"{STRONG}|auth|signature|{HEADER}"
SPARK_PATTERN = f"(?i){_NAMES}"
"""The same as `is_secret` for `spark.redaction.regex`: what matches is hidden in Spark's log, UI and events."""

_STRONG_NAME = rf"(?i){STRONG}|{HEADER}"
_NAMED_FOR_IT = r"(?i)(?:key|key.?id|auth|authorization|signature)$"
# Numbers about a secret: "s3.session-token-expires-at-ms". Any other number may be a password.
_MEASURE = (
    r"(?i)(?<![a-z])(?:ms|sec|secs|seconds|minutes|hours|days|ttl|min|max|age|port|size|length|count|version|bits|tokens"
    r"|retries|attempts|interval|timeout|lifetime|refresh|renew|expir\w*)(?![a-z])"
)
# Settings about a proof of identity, which are no secrets: "rest.auth.type", "oauth2-server-uri", "…authority-host".
_ABOUT_IT = (
    r"(?i)(?:type|mode|enabled?|ur[il]|endpoint|host|port|authority|authentication|authenticate|authors?|issuer|scopes?|realm"
    r"|mechanism|method|scheme|class|provider|name|email|version|algorithm|timeout|retries|ms|at|source|file|path|tenant|client.id)$"
)
# Names whose values are the place of a secret, or the class that finds it: the place itself is not hidden.
_PLACE_NAME = r"(?:(?i:provider|class|type|conf|config|file|path|dir|location)|\.(?:driver|executor)\.secrets\.[\w-]+)$"
_CLASS = r"(?:[a-z_]\w*\.){2,}[A-Za-z_$][\w$]*"
_FILE = r"(?:file://|local://)?/[\w./@-]*|[\w-]+\.(?:conf|config|xml|json|keytab|properties|jks|pem|p12)"
# A login of Kerberos, of whose options none is a secret.
_OPTION = r"(?:useKeyTab|keyTab|storeKey|useTicketCache|renewTGT|principal|serviceName|refreshKrb5Config|debug)"
_KERBEROS = (
    rf"com\.(?:sun|ibm)\.security\.auth\.module\.Krb5LoginModule\s+\w+(?:\s+{_OPTION}=(?:\"[^\"]*\"|[\w./@-]+))*\s*;?"
)
_PLACE = rf"{_FILE}|{_CLASS}(?:\s*,\s*{_CLASS})*|{_KERBEROS}"
# The working directory, which a shell calls so.
_FOLDER_NAMES = ("PWD", "OLDPWD")
# Hadoop's settings of one account of Azure have its name at their end.
_ACCOUNT = r"\.[\w-]+\.(?:dfs|blob)\.[\w.-]+$"
_KEY_OF_KUBERNETES = r"\.(?:driver|executor)\.secretKeyRef\.[\w-]+$"
_PLAIN_WORD = r"(?i)true|false|none|null|anon|cloud|\*{3,}|https?://[^@?]*|"
_NUMBER = r"[0-9.]+"


def is_secret(name: str) -> bool:
    """Tell whether the value of a property, header, parameter or variable may be a secret, by its name alone."""
    part, whole = _of_names()
    return part.search(name) is not None and whole.search(name) is not None


@cache
def _of_names() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return what each name of a secret has in it, which is found quickly, and the pattern of them."""
    parts = (
        r"(?i)secret|pass|pwd|ugi|token|cred|cookie|bearer|sas|sig|jwt|dsn|key|hmac|jaas|string|kwargs|auth|header|deleg"
        r"|storage|assertion|saml"
    )
    return re.compile(parts), re.compile(SPARK_PATTERN)


def is_kept(name: str, value: str) -> bool:
    """Whether a value is a secret as a whole."""
    if not is_secret(name) or is_plain_word(value.strip()):
        return False
    if re.fullmatch(_NUMBER, value.strip()):
        is_named = re.search(_STRONG_NAME, name) or re.search(_NAMED_FOR_IT, name)
        return bool(is_named) and not is_measure(name)
    if name in _FOLDER_NAMES and re.fullmatch(_FILE, value.strip()):
        return False
    name = re.sub(_ACCOUNT, "", name)
    if re.search(_KEY_OF_KUBERNETES, name) or (re.search(_PLACE_NAME, name) and re.fullmatch(_PLACE, value.strip())):
        return False
    return bool(re.search(_STRONG_NAME, name)) or not re.search(_ABOUT_IT, name) or bool(re.search(r"[@?]", value))


def is_plain_word(value: str) -> bool:
    """Whether a value is none of a secret, whatever its name: a truth value, nothing, a plain address."""
    return re.fullmatch(_PLAIN_WORD, value) is not None


def is_number(value: str) -> bool:
    """Whether a value is of digits."""
    return re.fullmatch(_NUMBER, value) is not None


def is_measure(name: str) -> bool:
    """Whether a number under a name is one about a secret."""
    return re.search(_MEASURE, name) is not None


def is_header(name: str) -> bool:
    """Whether only its place, `header.…`, makes a secret of a name."""
    return is_secret(name) and not is_secret(re.sub(f"(?i){HEADER}", "", name))
