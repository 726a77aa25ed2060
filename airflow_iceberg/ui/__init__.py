"""Pages about tables in Airflow's UI: a plugin that serves HTML, and stores nothing.

`plugin` is what Airflow imports in every process, and imports nothing; `app` has the addresses and is imported by the
first request. `access` is who may see what, `opened` reads tables, `views` and `health` say what is shown of them,
`committed` what a run did, and `render` makes HTML of it.
"""
