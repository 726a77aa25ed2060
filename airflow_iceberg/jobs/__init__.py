"""What runs next to the data: reads rows, writes data files, reports them. It cannot commit.

protocol      the two documents between Airflow and a job: JobPlan in, JobResult out
run_plan      one job: chooses the phases by the operation
run_task      one task: chooses the work by its kind
append, append_sorted, compact, compact_sorted, delete, inventory
              an operation each: the work of its tasks, and its phases on the driver
task, context, phase
              what these share: what a task has to do, what it works with, how the driver runs it
exchange      rows of one partition, or of one range, brought to one task through Arrow files under the staging prefix
sources       source files -> units of work -> Arrow tables
run_local     runs the tasks over threads in this process, without a JVM
spark         runs the tasks on Spark (classic and Connect), also for queries and Python callables
main          the program that spark-submit starts

Nothing here imports Airflow, a catalog or the commit engine: a failed or repeated job leaves unreferenced files only.
"""
