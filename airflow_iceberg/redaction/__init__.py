"""What a secret is, and how it is kept out of messages, logs, command lines and documents.

The one place that decides which names are those of secrets (`names`), which texts are secrets (`tokens`, `addresses`,
`pairs`, `couples`; `words` are none; `spellings`), and how they are removed from a text (`texts`) or from properties
(`properties`, and `variables` of an environment). Hooks, back ends, stores, catalogs and errors apply it. Nothing here
imports another module of this package.
"""

from airflow_iceberg.redaction.names import SPARK_PATTERN, is_secret
from airflow_iceberg.redaction.properties import (
    hidden_texts,
    hide,
    login_scheme,
    printable,
    replaced,
    secrets_of,
    shown_command,
)
from airflow_iceberg.redaction.texts import HIDDEN, said, without_secrets
from airflow_iceberg.redaction.variables import (
    SPARK_VARIABLES_PATTERN,
    is_secret_argument,
    is_secret_setting,
    is_secret_variable,
)

__all__ = [
    "HIDDEN",
    "SPARK_PATTERN",
    "SPARK_VARIABLES_PATTERN",
    "hidden_texts",
    "hide",
    "is_secret",
    "is_secret_argument",
    "is_secret_setting",
    "is_secret_variable",
    "login_scheme",
    "printable",
    "replaced",
    "said",
    "secrets_of",
    "shown_command",
    "without_secrets",
]
