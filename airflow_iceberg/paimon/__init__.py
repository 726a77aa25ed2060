"""Apache Paimon tables, read: their metadata byte by byte, without Paimon.

    schema, types       columns and their types, from the schema files
    binary_row, stats   one row as bytes; bounds and null counts of a file
    records             the containers of all manifests: Avro, ORC, Parquet -> columns
    avro_columns        with arrays, the quick way for large ones, without an object for each record
    manifests, entries  manifest lists; data manifests, merged into the live files of a snapshot
    index_manifests     which index files belong to a snapshot; deletion_vectors reads two kinds of them
    paths               the names of partition directories and files
    snapshots           snapshots, tags, statistics files
    table               the only module that does I/O: `PaimonTable` over a `FileIO`
    inspection          what a table holds, as Arrow tables
    waiting             what a wait for a snapshot is over for

All of it is the read side: nothing here writes a Paimon table.
"""
