"""The workloads of the paper and of the article, by name."""

from __future__ import annotations

from bench.workloads import article, paper, replication, spark
from bench.workloads.workload import Workload

_PARTS = (paper.WORKLOADS, article.WORKLOADS, replication.WORKLOADS, spark.WORKLOADS)
WORKLOADS: dict[str, Workload] = {each.name: each for part in _PARTS for each in part}
