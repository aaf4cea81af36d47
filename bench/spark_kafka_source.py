"""The jars of Spark's own Kafka source, the peer of our data source; they must match the release of PySpark."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

from bench.downloads import maven_jars


def kafka_source_jars() -> Path:
    """Return the folder of the jars of Spark's own Kafka source, of the same release as PySpark.

    :raises UnavailableError: Maven does not have them.
    """
    version = metadata.version("pyspark")
    return maven_jars(f"spark-kafka-{version}", [f"org.apache.spark:spark-sql-kafka-0-10_2.13:{version}"])
