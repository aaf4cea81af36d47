"""Topics as SQL tables.

    topic, partition, offset, timestamp, key, value, headers, and a column for each field of the values

DuckDB runs small queries in this process (`duckdb_engine.py`); Spark runs the same statements on large topics
(`spark_engine.py`). Requires the extra: `pip install 'barnabas[sql]'`.
"""
