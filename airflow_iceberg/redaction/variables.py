"""Which variables of an environment, and which settings of Spark, are secrets.

More names count than elsewhere: a mistake costs a line in a list, or a refusal that says what to do.
"""

from __future__ import annotations

import re

from airflow_iceberg.redaction.properties import secrets_of, setting_in

# `DBPASS`, `PG_PW`, `SSHKEY`; not `BYPASS` and `PARTITION_KEY`. Java and Python read it the same.
_VARIABLE_NAME = (
    r"(?:(?<!by)(?<!com)(?<!tres)pass(?:w|wd|word|phrase|code)?|(?<![a-z])pw|pwd|secrets?|tokens?|credentials?"
    r"|(?<![a-z])(?:creds?|auth|jwt|pat|dsn|sas|cookie|webhook|webhook_url)"
    r"|(?<!mon)(?<!tur)(?<!primary_)(?<!partition_)(?<!foreign_)(?<!sort_)(?<!message_)(?<!routing_)keys?)$"
)
# A setting of Spark that is a variable of one of its processes.
_VARIABLE_OF_SPARK = r"spark\.[\w.]*[eE]nv\.(\w+)"
SPARK_VARIABLES_PATTERN = rf"[eE]nv\.\w*{_VARIABLE_NAME}"
"""What to hide in Spark's log and UI beside `SPARK_PATTERN`: settings of variables."""


def is_secret_variable(name: str, value: str) -> bool:
    """Whether a variable of an environment is a secret by its name, or is or contains one by its value."""
    if secrets_of({name: value}):
        return True
    is_named = re.search(f"(?i){_VARIABLE_NAME}", name) is not None
    return is_named and not re.fullmatch(r"(?i)\s*(?:true|false|yes|no|on|off|none|null)?\s*", value)


def is_secret_setting(name: str, value: str) -> bool:
    """Whether a setting of Spark is or contains a secret, also as a variable of one of Spark's processes."""
    variable = re.fullmatch(_VARIABLE_OF_SPARK, name)
    return bool(secrets_of({name: value})) or (variable is not None and is_secret_variable(variable[1], value))


def is_secret_argument(argument: str) -> bool:
    """Whether an argument of a command line, which may be a setting `name=value`, is or contains a secret."""
    return is_secret_setting(*setting_in(argument))
