"""Asks Spark each query over whole tables, over their rows in another order, and over what is read of them.

The tables are texts of SQL, whose rows Spark has at hand: a query takes some hundredths of a second. Each of the three
has a session of its own, whose views need not be made again for each query.
"""

import json

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException


def answer(session, query):
    """Return the rows in any order; None if the query is none, or fails, or if Spark itself has a fault in it."""
    try:
        return sorted(repr(list(row)) for row in session.sql(query).collect())
    except (PySparkException, Py4JJavaError):
        return None


def look(session, views):
    for name, text in views.items():
        session.sql(text).createOrReplaceTempView(name)


def judge(case, whole, turned, read):
    """Return None for a query that is none, else what is right and what came."""
    expected = answer(whole, case["query"])
    if expected is None or answer(turned, case["query"]) != expected:
        return None
    look(read, case["read"])
    return [expected, answer(read, case["query"])]


def main(session, questions, answers):
    with open(questions) as source:
        asked = json.load(source)
    whole, turned, read = sessions = [session.newSession() for _ in range(3)]
    for one in sessions:
        one.conf.set("spark.sql.session.timeZone", "UTC")
        look(one, asked["tables"])
    look(whole, asked["whole"])
    look(turned, asked["turned"])
    found, valid = [], 0
    for case in asked["cases"]:
        if valid == asked["count"]:
            break
        before = {name: session.conf.get(name) for name in case["settings"]}
        for one in sessions:
            for name, value in case["settings"].items():
                one.conf.set(name, value)
        found.append(judge(case, whole, turned, read))
        valid += found[-1] is not None
        for one in sessions:
            for name, value in before.items():
                one.conf.set(name, value)
    with open(answers, "w") as sink:
        json.dump(found, sink)
