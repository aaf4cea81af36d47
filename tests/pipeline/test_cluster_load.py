"""Loads and Spark's source against three brokers, of which one is killed in between."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from barnabas import Admin
from barnabas.spark import load, register
from tests.support.process_cluster import running_cluster
from tests.support.table_contents import TOPIC, data_files, named_files, numbers_in, produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_broker_that_is_killed_between_loads_costs_no_record(spark: SparkSession, tmp_path: Path) -> None:
    warehouse = tmp_path / "warehouse"
    with running_cluster(tmp_path, {"zookeeper_session_timeout_ms": "4000"}) as cluster:
        with Admin(cluster.bootstrap) as admin:
            admin.create_topic(TOPIC, 3, 3, {"retention.ms": "-1", "min.insync.replicas": "2"})
        produce(cluster.bootstrap, 0, 300)
        load(TOPIC, bootstrap=cluster.bootstrap, warehouse=warehouse, spark=spark)
        produce(cluster.bootstrap, 300, 300)
        cluster.brokers[cluster.leader_of(TOPIC)].kill()
        produce(cluster.bootstrap, 600, 100)
        load(TOPIC, bootstrap=cluster.bootstrap, warehouse=warehouse, spark=spark)
        assert numbers_in(warehouse) == list(range(700))
        assert data_files(warehouse) == named_files(warehouse)
        register(spark)
        reader = spark.read.format("barnabas").option("kafka.bootstrap.servers", cluster.bootstrap)
        assert reader.option("subscribe", TOPIC).load().count() == 700
