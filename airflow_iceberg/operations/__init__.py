"""What can be done to a table.

a request gives a result. Plans, runs the job, commits, cleans up; one module an operation.
"""
