"""A catalog in the AWS Glue Data Catalog."""
