"""What an older Arrow does not know of Parquet; the constraints of Airflow 3.1 pin 18.1 (docs/adr/0026)."""

# The first that marks UUIDs in Parquet files, and reads files with columns marked as variants.
_KNOWS_UUID_AND_VARIANT = 22


def version() -> str:
    """Return the version of the Arrow that reads and writes the rows."""
    import pyarrow

    return str(pyarrow.__version__)


def knows_uuid_and_variant() -> bool:
    """Return whether this Arrow has Parquet's logical types UUID and VARIANT."""
    return int(version().partition(".")[0]) >= _KNOWS_UUID_AND_VARIANT


def explained(error: Exception) -> str:
    """Return what Arrow says of a file that it cannot read, and what to do if only its version is to blame."""
    text = " ".join(str(error).split()) or type(error).__name__
    if "Logical" in text and not knows_uuid_and_variant():
        text += f"; pyarrow {version()} does not know a type of this file, {what_to_do()}"
    return text


def what_to_do() -> str:
    """Return the advice: where, and which version."""
    return f"install pyarrow {_KNOWS_UUID_AND_VARIANT} or later where the rows are read and written"
