"""Changes of a table as users write them, and their effect on its metadata.

A list of changes, each an object with one key that names the change; the same in Python, JSON and YAML:

    [
        {"add_column": {"name": "price", "type": "decimal(9, 2)", "after": "id"}},
        {"rename_column": {"from": "ts", "to": "moment"}},
        {"replace_partition_field": {"from": "day(moment)", "to": "hour(moment)"}},
        {"set_properties": {"write.target-file-size-bytes": "134217728"}},
    ]

They are made in this order and committed together, or not at all. docs/how-to/alter-a-table.md lists them.
"""
