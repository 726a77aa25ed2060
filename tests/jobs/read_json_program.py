"""Says how Spark reads files of JSON lines: `read_json_program.py <output> <folder>…`."""

import json
from pathlib import Path


def main(session, output, *folders):
    session.conf.set("spark.sql.caseSensitive", "true")
    try:
        schemas = [json.loads(session.read.json(folder).schema.json()) for folder in folders]
    finally:
        session.conf.unset("spark.sql.caseSensitive")  # others use this session, too
    Path(output).write_text(json.dumps(schemas))
