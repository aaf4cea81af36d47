"""Spark's standalone cluster and three brokers: workers that are killed cost no record and double none.

The workers' Python comes in an archive, as an environment does that is shipped; this one has nothing but a program that
becomes the Python of the tests.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from barnabas import Admin
from tests.programs.cluster_job import STREAMED, TOPIC
from tests.support.process_cluster import running_cluster
from tests.support.spark_processes import StandaloneCluster, environment
from tests.support.table_contents import data_files, named_files, numbers_in, produce
from tests.support.xdist_groups import SPARK_PROGRAMS

pytestmark = pytest.mark.xdist_group(SPARK_PROGRAMS)

COUNT = 10_000
PATIENCE_S = 400


class Job:
    """The user's program, told and answered line by line."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def told(self) -> dict[str, object]:
        """Return what it says next."""
        assert self.process.stdout
        line = self.process.stdout.readline()
        assert line, self.process.stderr and self.process.stderr.read()
        said: dict[str, object] = json.loads(line)
        return said

    def go_on(self) -> None:
        """Let it go on, where it waits."""
        assert self.process.stdin
        self.process.stdin.write("\n")
        self.process.stdin.flush()


def pack(folder: Path, name: str, command: str) -> Path:
    """Return an archive with `bin/python`, and leave a copy of it in the folder for the driver."""
    program = folder / name / "environment" / "bin" / "python"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
    program.chmod(0o755)
    archive = folder / f"{name}.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(program.parent, "bin")
    return archive


@contextmanager
def running_job(archive: Path, *arguments: str) -> Iterator[Job]:
    """Start the program with the workers' Python in an archive, where the driver has that Python too."""
    command = [sys.executable, "-m", "tests.programs.cluster_job", *arguments]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    more = {
        "PYSPARK_PYTHON": "./environment/bin/python",
        "PYSPARK_SUBMIT_ARGS": f"--archives {archive}#environment --conf spark.executor.memory=512m pyspark-shell",
    }
    cwd = archive.parent / archive.name.removesuffix(".tar.gz")
    with subprocess.Popen(command, cwd=cwd, env=environment(**more), text=True, **pipes) as process:  # type: ignore[call-overload]
        try:
            yield Job(process)
        finally:
            process.kill()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    """A master and two workers."""
    made = StandaloneCluster(tmp_path_factory.mktemp("spark-cluster"))
    try:
        made.wait_for(made.add_worker(), made.add_worker())
        yield made
    finally:
        made.close()


@pytest.mark.timeout(900)
def test_workers_that_lack_packages_are_told_of_in_a_line(cluster: StandaloneCluster, tmp_path: Path) -> None:
    archive = pack(tmp_path, "bare", f"{sys._base_executable} -S")  # type: ignore[attr-defined]
    driver = tmp_path / "bare" / "environment" / "bin" / "python"
    driver.unlink()  # the driver's own is another one, so that only the workers can tell
    with running_job(archive, cluster.url, "nowhere:1", str(tmp_path)) as job:
        refused = str(job.told()["refused"])
    assert refused.startswith("Spark's workers lack the packages pyarrow, cramjam, crc32c")
    assert "--archives" in refused
    assert "\n" not in refused


@pytest.mark.timeout(900)
def test_workers_that_are_killed_in_a_load_and_in_a_stream_cost_no_record(
    cluster: StandaloneCluster, tmp_path: Path
) -> None:
    warehouse = tmp_path / "warehouse"
    archive = pack(tmp_path, "whole", sys.executable)
    with running_cluster(tmp_path, {}) as brokers:
        with Admin(brokers.bootstrap) as admin:
            admin.create_topic(TOPIC, 3, 3, {"retention.ms": "-1", "min.insync.replicas": "2"})
        produce(brokers.bootstrap, 0, COUNT)
        with running_job(archive, cluster.url, brokers.bootstrap, str(tmp_path)) as job:
            assert job.told() == {"at": "loading"}
            cluster.workers[0].kill()
            third = cluster.add_worker()
            job.go_on()
            assert job.told() == {"loaded": COUNT}
            assert job.told() == {"at": "streaming"}
            cluster.wait_for(third)
            cluster.workers[1].kill()
            job.go_on()
            assert job.told() == {"streamed": COUNT}
            counts = [job.told() for _ in range(3)]
            assert counts[0] == counts[1] == counts[2]
            assert job.process.wait(PATIENCE_S) == 0
    assert numbers_in(warehouse) == list(range(COUNT))
    for table in (TOPIC, STREAMED):
        kept = {path for path in data_files(warehouse) if f"/default/{table}/" in path}
        assert kept == named_files(warehouse, table)
