"""Where jobs run: what a job's processes have to do with the task, and what Spark's output says about its end.

The back ends themselves are in `submit`.
"""
