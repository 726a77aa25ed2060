"""What a secret is, and how it is kept out of messages, logs, command lines and documents.

The one place that decides it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from airflow_iceberg.errors import InvalidInputError

if TYPE_CHECKING:
    pass


_WITH_PASSWORD = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://[^/@]*:[^/]*@")


def check_no_password(location: str) -> None:
    """Refuse a location that holds a password; it is not shown.

    Raises:
        InvalidInputError: it would stand in every table, log and job plan.
    """
    found = _WITH_PASSWORD.match(location.strip())
    if found is not None:
        raise InvalidInputError(
            f"a location that begins with {found['scheme'].lower()}:// holds a user and a password, which would be "
            f"written into tables and logs: leave them out of it, and give them as properties of the catalog's "
            f"connection"
        )
