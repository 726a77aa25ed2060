"""Task decorators: `@task.iceberg_append`, `@task.iceberg_overwrite` and `@task.iceberg_merge`.

Airflow finds them by `get_provider_info`, so that a DAG file imports only `from airflow.sdk import task`.
"""
