"""What only runs with PySpark, or finds a Spark to run on."""
