"""What runs next to the data: reads rows, writes data files, reports them. It cannot commit.

protocol    the two documents between Airflow and a job: JobPlan in, JobResult out
sources     files -> work units -> Arrow tables
tasks       one task: read, conform, write; pure functions of (plan, work, task number)
exchange    rows of one partition brought to one task, through Arrow files under the staging prefix
local       runs the tasks over threads in this process, without a JVM
spark       runs the tasks on Spark (classic and Connect), also for queries and Python callables
main        the program that spark-submit starts
package     this package as one zip, for the cluster

Nothing here imports Airflow, a catalog or the commit engine: a failed or doubled job leaves files that
nobody refers to, and nothing else.
"""
