"""`airflow iceberg …`: a table's state and history on a terminal. Functions that translate; they decide nothing."""
