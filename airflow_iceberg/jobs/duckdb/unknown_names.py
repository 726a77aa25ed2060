"""What DuckDB says of a name that it does not know, in words of the SQL's author, with the names that there are.

DuckDB advises names of those columns alone that were read for it. Its message is all that tells which name it was.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

_WORDS = {
    r'Binder Error: Referenced column "(?P<name>.+)" not found in FROM clause': "column {name!r} is not known",
    r'Binder Error: Table "(?P<of>.+)" does not have a column named "(?P<name>.+)"': "'{of}' has no column {name!r}",
    r'Binder Error: Referenced table "(?P<name>.+)" not found': "neither a table nor a column is called {name!r}",
    r'Binder Error: Could not find key "(?P<name>.+)" in struct': "a struct has no field {name!r}",
}


def explained(message: str, columns: Mapping[str, Sequence[str]]) -> str | None:
    """Return what a message of DuckDB says of an unknown name; None if it says something else.

    Args:
        columns: the columns of each table that the SQL sees, by the table's name.
    """
    for pattern, words in _WORDS.items():
        found = re.match(pattern, message)
        if found is not None:
            tables = "; ".join(f"'{name}' has {', '.join(own) or 'no columns'}" for name, own in columns.items())
            return f"{words.format(**found.groupdict())}: {tables or 'there are no tables here'}"
    return None
