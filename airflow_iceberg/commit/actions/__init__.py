"""What a commit does, one action a module;

Java calls them `Append`, `OverwriteFiles`, `RowDelta`, `RewriteFiles` and so on.
"""
