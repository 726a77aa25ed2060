"""Apache Iceberg table operations as Airflow tasks: append, wait, maintain; committed exactly once.

Importing this package costs nothing: it imports neither pyarrow nor pyspark nor airflow. What users touch lives in
`airflow_iceberg.catalogs.load` (`load_catalog`), `airflow_iceberg.table` (`Table`), `airflow_iceberg.operators`,
`airflow_iceberg.sensors.iceberg` and `airflow_iceberg.hooks.iceberg`.
"""

__version__ = "0.1.0"
