"""What stays is left out of the collections of Spark's workers, and of nobody else's."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

FIRST_TASK = """
import gc, sys
from barnabas.spark.options import parse_options
from barnabas.spark.range_partition import read_partition
from pyspark.sql.datasource import InputPartition

options = parse_options({"kafka.bootstrap.servers": "a:1", "subscribe": "t"})
frozen = []
for _ in range(2):
    assert list(read_partition(InputPartition(None), options, ["value"])) == []
    frozen.append(gc.get_freeze_count())
sys.stdout.write(f"{frozen[0] > len(sys.modules)} {frozen[0] == frozen[1]}")
"""


@pytest.mark.parametrize("is_worker", [True, False])
def test_a_workers_first_task_leaves_what_is_imported_out_of_its_collections(is_worker: bool) -> None:
    environment = {**os.environ, "SPARK_REUSE_WORKER": "1" if is_worker else ""}
    done = subprocess.run(
        [sys.executable, "-c", FIRST_TASK], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{is_worker} True"
