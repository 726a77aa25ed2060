"""Committing a change: actions describe a change of the table's latest state, the engine commits it exactly once.

    table = Table.load(catalog, "sales.orders")
    scan = table.scan("day = '2026-11-01'")                      # remember the snapshot that was planned on
    settings = table.commit_settings(operation_key=key, try_number=2)   # for one commit: snapshot id, summary, key
    action = OverwriteFiles(
        table.io,
        settings,
        added=files,                                             # DataFile values of the job
        row_filter=scan.row_filter,                              # bound; files that hold only such rows are deleted
        written_schema=table.schema(),
        starting_snapshot_id=scan.snapshot.snapshot_id if scan.snapshot else None,
        earlier=EarlierEpochs(table.io, key, settings.branch, try_number=2, on_rerun="replace"),
    )
    result = table.commit(action)                                # WriteResult: committed, found or nothing

Each module of `commit.actions` is one change. The engine asks "has it landed?" before each attempt and reads the table
if the answer is lost; an attempt uses the manifests of earlier ones if it would make the same (`attempts.kept`). If a
change conflicts with others, it raises `StalePlanError` (re-plan) or `IncompatibleChangeError` (stop). The caller
deletes its data files after any error except `CommitUnknownError`.

After a clear, `earlier` deletes the rows of the task's earlier runs in the same commit. Those rows are known by the key
in the snapshot's summary and by file names: `OperationKey.file_prefix` for files of new rows,
`OperationKey.carried_prefix` for files of carried rows, which are kept.
"""
