"""The workloads of the paper and of the article that one broker can run, by name."""

from __future__ import annotations

from bench.workloads import article, paper, spark
from bench.workloads.workload import Workload

WORKLOADS: dict[str, Workload] = {each.name: each for each in (*paper.WORKLOADS, *article.WORKLOADS, *spark.WORKLOADS)}
