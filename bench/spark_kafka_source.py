"""Provides the jars of Spark's own Kafka source, which the benchmark compares with Barnabas's data source."""

from __future__ import annotations

from pathlib import Path

from bench.downloads import maven_jars

VERSION = "4.2.0"
JARS = (
    f"org.apache.spark:spark-sql-kafka-0-10_2.13:{VERSION}",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.1.0-preview1",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.13.1",
)
"""These jars also run with PySpark 4.2 and 4.3. For these releases, Maven does not have all jars."""


def kafka_source_jars() -> Path:
    """Return the folder of the jars of Spark's own Kafka source.

    :raises UnavailableError: if Maven does not have them.
    """
    return maven_jars(f"spark-kafka-{VERSION}-alone", JARS, transitive=False)
