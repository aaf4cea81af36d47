"""Days of `barnabas load --every` in minutes: loads and maintenance in a time that moves, and readers beside them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.support.reading import wait_until
from tests.support.shifted_time import environment_of

AHEAD_S = 4 * 365 * 86_400
"""How far the time of the loads is ahead of the real time: continuous_loads.py needs years between them."""
ENDS_S = 120
Line = dict[str, float]


def simulate(folder: Path, table_format: str, *arguments: str) -> Iterator[Line]:
    """Run loads in one process and readers in another one. Yield the lines of continuous_loads.py.

    :param folder: An empty folder for the warehouse.
    :param arguments: Of continuous_loads.py.
    :raises AssertionError: A load, a maintenance or a reader has failed.
    """
    program = [sys.executable, "-m", "tests.programs.{}", str(folder), table_format]
    writes, reads = ([each.format(name) for each in program] for name in ("continuous_loads", "continuous_reads"))
    with subprocess.Popen(
        [*writes, *arguments], env=environment_of(folder, AHEAD_S), stdout=subprocess.PIPE, text=True
    ) as writer:
        progress = folder / "progress"
        wait_until(lambda: writer.poll() is not None or (progress.exists() and progress.stat().st_size), "loads", 60)
        with subprocess.Popen(reads, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as reader:
            try:
                assert writer.stdout
                for line in writer.stdout:
                    assert reader.poll() is None, "a reader has failed; its error is printed above"
                    yield json.loads(line)
                assert writer.wait(ENDS_S) == 0, "the loads have failed; their error is printed above"
                done, _ = reader.communicate("", ENDS_S)
                assert reader.returncode == 0, "a reader has failed; its error is printed above"
                yield json.loads(done)
            finally:
                writer.kill()
                reader.kill()
