"""The groups of tests that one process runs, one after the other, where tests run side by side (`xdist_group`).

What many of them at once would be too much for: a Spark, a cluster, a program in Java.
"""

from __future__ import annotations

SPARK = "spark"
"""Tests that share one Spark session."""
SPARK_PROGRAMS = "Spark programs"
"""Those of programs that start a Spark of their own."""
ZOOKEEPER = "zookeeper"
"""Those of ZooKeeper, and of what uses it."""
CLUSTERS = "clusters"
"""Those of three brokers with a ZooKeeper."""
FAULTS = "clusters under faults"
"""Those that kill, stop and cut off what runs in such clusters. With the two above they would be the longest of all
that runs side by side, by far, if they were one; they wait much and compute little."""
JAVA = "Java programs"
"""Those of other people's clients and tools."""

BROWSER = "browser"
"""The tests of the console in a real browser."""

SYSTEMS = (SPARK, SPARK_PROGRAMS, FAULTS, CLUSTERS, ZOOKEEPER, JAVA, BROWSER)
"""What `make system` runs, and `make test` does not: systems of several programs, Java's among them. The longest first:
none of these is left for the end, when the other processes have nothing to do."""
