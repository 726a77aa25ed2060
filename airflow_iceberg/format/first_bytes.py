"""What a file is that was taken for another one, by its first bytes: for errors that say so.

Here: names of formats, compressions and encryptions. Not here: reading any of them.
"""

from __future__ import annotations

from airflow_iceberg.errors import FormatError, UnsupportedError

_ENCRYPTED = (b"AGS1", b"PARE")
_COMPRESSED = {
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\x04\x22\x4d\x18": "lz4",
    b"\xff\x06\x00\x00sNaPpY": "snappy",
    b"\xfd7zXZ\x00": "xz",
    b"BZh": "bzip2",
}
_FORMATS = {
    b"Obj\x01": "an Avro file",
    b"PAR1": "a Parquet file",
    b"ORC": "an ORC file",
    b"PFA1": "a Puffin file",
    b"PK\x03\x04": "a zip archive",
    b"<": "a page of HTML or XML",
}

_MOST = 16


def refuse_other_kinds(data: bytes, expected: str, *, path: str | None, compressed: str = "") -> None:
    """Raise an error that says what a file is, if its first bytes tell that it is of another kind.

    Args:
        expected: what it should be, "table metadata".
        compressed: which compressions are supported, and what to do about others.
    Raises:
        UnsupportedError: it is encrypted or compressed.
        FormatError: it is a file of another format.
    """
    data, where = bytes(data[:_MOST]), f" in {path}" if path else ""
    if data.startswith(_ENCRYPTED):
        raise UnsupportedError(
            f"unexpected encrypted file (expected {expected}){where}: encrypted tables are not supported, read them "
            f"with the engine that has the keys"
        )
    for first, codec in _COMPRESSED.items():
        if data.startswith(first):
            advice = f"; {compressed}" if compressed else ""
            raise UnsupportedError(
                f"unexpected compression {codec} of the whole file (expected {expected}){where}{advice}"
            )
    for first, kind in _FORMATS.items():
        if data.startswith(first):
            raise FormatError(f"unexpected content: {kind} (expected {expected})", path=path)
