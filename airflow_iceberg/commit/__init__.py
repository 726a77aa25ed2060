"""MAKE IT TRUE: actions describe a change against whatever the table is now, the engine lands it exactly once.

    table = Table.load(catalog, "sales.orders")
    scan = table.scan("day = '2026-11-01'")                      # plan: remember the snapshot that it was made on
    start = scan.snapshot.snapshot_id if scan.snapshot else None
    settings = table.commit_settings(operation=key, try_number=2)   # one for each commit: snapshot id, summary, key
    action = OverwriteFiles(
        table.io,
        settings,
        added=files,                                             # DataFile values of the job
        row_filter=scan.row_filter,                              # bound; whole files that it covers go
        written_schema=table.schema(),
        starting_snapshot_id=start,
        isolation="serializable",
        earlier=earlier_runs(table.io, settings, try_number=2, replace=True),   # airflow_iceberg.commit.settings
    )
    result = table.commit(action)                                # WriteResult: committed, found or empty

==============================  ============================================================================
`append.AppendFiles`            new rows
`overwrite.OverwriteFiles`      by filter (`row_filter`), copy-on-write (`removed`, `added`), both at once;
                                whole files by metadata alone: `row_filter`, `isolation=None`
`overwrite.ReplacePartitions`   dynamic overwrite, validated unless `isolation=None`
`row_delta.RowDelta`            merge-on-read: deletion vectors (v3), position and equality deletes, new rows
`rewrite.RewriteFiles`          compaction, sorting, rewriting delete files: rows stay, deletes of them win
`rewrite_manifests.RewriteManifests`   the same files in fewer manifests
`expire.ExpireSnapshots`        metadata only; `.expiry` says what went (no snapshot: `Table.change`)
`refs.*`                        branches, tags, rollback, fast-forward, cherry-pick (no snapshot: `Table.change`)
`alter.AlterTable`              schema, partitioning, properties
==============================  ============================================================================

What all of them promise: the table is asked "has it landed?" before anything else, on every attempt; a lost answer is
read back; nothing is deleted while that is open; new manifests are written once and kept over retries. A change that
others have overtaken raises `StalePlanError` (plan again: let the task be retried, or plan the group again) or
`IncompatibleChangeError` (stop). Data files are the caller's: remove them after any error but `CommitUnknownError`.

Before the work starts: `Table.find_append(key, on_rerun=…)` asks whether it is done, for every operation. After a clear
(`on_rerun="replace"`) the rows that earlier runs of the task brought go in the same commit, where `earlier` is given.
They are known by their snapshot's key and by their file names: name files with new rows `OperationKey.file_prefix`, and
files with rows that were carried over from other files (copy-on-write, compaction) `OperationKey.carried_prefix`: those
hold rows of others and must not go with the run.
"""
