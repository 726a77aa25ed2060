"""When two names mean one source file, which is then read once.

Local files are compared as the system finds them: without "//", ".", ".." and symbolic links, with or without `file:`.
HDFS resolves the same in its paths, but for links. A key of an object store is what it is: `a//b` and `a/b` are two.
Schemes of one store, such as `s3` and `s3a`, are one.
"""

from __future__ import annotations

import posixpath
from collections.abc import Hashable

from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.storage.gate import LOCAL, STORE_OF_SCHEME, place_of

_WITH_FOLDERS = ("hdfs", "viewfs", "webhdfs", "swebhdfs")


def identity(location: str) -> Hashable:
    """Return what is equal for two names of one file."""
    scheme, separator, rest = location.partition("://")
    if separator and scheme.lower() == "local":
        # Another name of fsspec for the same files.
        scheme, location = LOCAL, f"{LOCAL}://{rest}"
    store = STORE_OF_SCHEME.get(scheme.lower()) if separator else LOCAL
    if store is None:
        return location  # a scheme of somebody else, whose rules are not known
    authority, slash, path = rest.partition("/")
    if store in _WITH_FOLDERS:
        location = f"{scheme}://{authority}{posixpath.normpath(f'/{path}')}"
    try:
        return place_of(location)
    except InvalidInputError:
        # Parts that look like those of a path are characters of a key to an object store.
        return (store, f"{authority}{slash}{path}") if separator else location
