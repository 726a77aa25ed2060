"""All files of a table: those that its manifests name, and those that are stored below its location.

Here: the work as a list of units, a pure function for each, and running them over threads of this process. Not here:
units on Spark (`jobs.inventory`), where they run and what follows from their results (`operations`, `inventory.purge`).
"""
