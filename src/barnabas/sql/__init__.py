"""Topics as tables of SQL.

    topic, partition, offset, timestamp, key, value, and a column for each field of the values

By DuckDB in this process (`duckdb_engine.py`), for small questions at once; the same text by Spark (`spark_engine.py`).
Needs the extra: `pip install 'barnabas[sql]'`.
"""
