"""A session that the user made, in an environment that nobody activated: its workers find the package all the same."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas import Producer
from tests.support.broker_process import BrokerProcess
from tests.support.quick_java import java_home_or_skip
from tests.support.xdist_groups import SPARK_PROGRAMS

pytestmark = pytest.mark.xdist_group(SPARK_PROGRAMS)

SCRIPT = """
import sys
from pyspark.sql import SparkSession
import barnabas.spark

bootstrap, warehouse = sys.argv[1:]
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
barnabas.spark.register(spark)
frame = spark.read.format("barnabas").option("kafka.bootstrap.servers", bootstrap).option("subscribe", "t").load()
print("read", frame.count())
print("loaded", barnabas.spark.load("t", bootstrap=bootstrap, warehouse=warehouse, spark=spark).records)
"""


@pytest.mark.timeout(600)
def test_a_session_of_the_users_own_reads_and_loads_without_settings(broker: BrokerProcess, tmp_path: Path) -> None:
    java_home = java_home_or_skip()
    with Producer(broker.bootstrap) as producer:
        producer.send_many("t", [b"1", b"2", b"3"]).result(60)
    python = tmp_path / "bin" / "python3"
    python.parent.mkdir()
    python.write_text("#!/bin/sh\necho 'No module named barnabas' >&2\nexit 1\n")
    python.chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
    environment |= {"PATH": f"{python.parent}:{os.environ['PATH']}", "JAVA_HOME": str(java_home)}
    command = [sys.executable, "-c", SCRIPT, broker.bootstrap, str(tmp_path / "warehouse")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.stdout.splitlines() == ["read 3", "loaded 3"], done.stderr
