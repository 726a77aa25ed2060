"""All files of a table: those that its manifests name, and those that are stored below its location.

Here: the work as a list of units, a pure function for each, and running them over threads of this process. Not here: on
Spark (`jobs.inventory`), where it runs and what its results mean (`operations.file_inventory`,
`inventory.reachable_files`, `operations.remove_orphan_files`, `inventory.purge`).
"""
