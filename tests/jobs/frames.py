"""Python callables as a user would write them; shipped to Spark beside the core."""

import time


def numbers(spark, n=10):
    return spark.range(n).selectExpr("id", "concat('n', id) as name", "date_add(DATE'2026-01-01', int(id % 5)) as day")


def seven(spark):
    return numbers(spark, 7)


def every_type(spark):
    return spark.sql(
        """
        select true as b, 1 as i, 2L as l, cast(1.5 as float) as f, double('NaN') as d, DATE'2026-01-01' as day,
               TIMESTAMP'2026-01-01 00:00:00 UTC' as ts_tz, TIMESTAMP_NTZ'2026-01-01 00:00:00' as ts,
               'ä' as s, X'00FF' as bin, cast(12.34 as decimal(9,2)) as dec,
               array('a', null) as tags, map('k', 1) as m, named_struct('x', 1.5D, 'y', array(1L)) as p
        union all
        select null, null, null, null, null, null, null, null, null, null, null, null, null, null
        """
    )


def without_the_rows_of(spark, orders, empty):
    return orders.join(empty, "id", "left_anti").select("id")


def raises(spark):
    raise RuntimeError("the lake is dry")


def no_frame(spark):
    return 42


def slow(spark):
    def rows(batches):
        for batch in batches:
            time.sleep(0.5)
            yield batch

    return spark.range(0, 600_000, 1, 2).mapInArrow(rows, "id long")


def escaped(spark):
    """Bind a text in a session whose literals have no escapes."""
    from airflow_iceberg.jobs.protocol.source import Source
    from airflow_iceberg.jobs.spark.query import open_query

    spark.conf.set("spark.sql.parser.escapedStringLiterals", "true")
    try:
        return open_query(Source.from_sql("select 1L as id, :x as name", {"x": "'"}), spark)
    finally:
        spark.conf.unset("spark.sql.parser.escapedStringLiterals")
