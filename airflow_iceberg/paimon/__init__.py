"""Metadata of Apache Paimon tables, read byte by byte and without Paimon; nothing here writes a Paimon table.

types, schema                       columns and their types, from the schema files
snapshots                           snapshots, tags, statistics files
binary_row, stats                   one row as bytes; bounds and null counts of a file
containers                          the containers of all manifests: Avro, ORC, Parquet
manifest_lists, data_manifests      the manifests of a snapshot; its live files
index_manifests, index_files        the index files of a snapshot; hashes and deletion vectors
literals, paths                     values of partition keys as users write them; names of directories
history, files                      all I/O: the snapshots of a table; the files of a snapshot
table, system_tables                `PaimonTable`; its content as Arrow tables
new_snapshot                        what a sensor waits for
"""
