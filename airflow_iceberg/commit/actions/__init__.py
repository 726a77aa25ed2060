"""One module for each change of a table; the names are those of Iceberg Java: `AppendFiles`, `OverwriteFiles`,
`RowDelta`.
"""
