"""The brokers of the demo: one, or a cluster. Their processes end with the demo."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from typing import IO

from barnabas import Admin
from barnabas.cli.cluster_file import ClusterFile
from barnabas.cli.ends_with_parent import ending_with_this_process
from barnabas.errors import BarnabasError

START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class Brokers:
    """Running brokers."""

    bootstrap: str
    """The addresses as `"host:port,..."`."""
    data: Path
    count: int

    def kill_leader(self, topic: str) -> int:
        """Kill the broker that leads most of a topic's partitions with SIGKILL. Return its id.

        Call this only for a cluster, which restarts a killed broker.
        """
        with Admin(self.bootstrap) as admin:
            leaders = Counter(partition.leader for partition in admin.describe_topics([topic])[0].partitions)
        ((leader, _),) = leaders.most_common(1)
        os.kill(ClusterFile.read(self.data).processes[leader], signal.SIGKILL)
        return leader


@contextmanager
def running_brokers(folder: Path, count: int) -> Iterator[Brokers]:
    """Run one broker with its data in `folder/broker`, or several brokers with ZooKeeper in `folder/cluster`.

    :raises BarnabasError: if they do not start. The message contains the last line of their log.
    """
    data = folder / ("broker" if count == 1 else "cluster")
    what = ["up"] if count == 1 else ["cluster", "up", "--brokers", str(count), "--restart"]
    command = [sys.executable, "-m", "barnabas.cli.main", *what, "--port", "0", "--data", str(data)]
    log = folder / "broker.log"
    with log.open("wb") as errors:
        # The brokers have a separate session, so Ctrl-C does not reach them. The demo stops its parts in order.
        process = subprocess.Popen(
            ending_with_this_process(command), stdout=subprocess.PIPE, stderr=errors, start_new_session=True
        )
    try:
        yield Brokers(_wait_ready(process, log), data, count)
    finally:
        _stop(process)


def _wait_ready(process: subprocess.Popen[bytes], log: Path) -> str:
    """Return the addresses of the brokers once they are ready."""
    answers: list[str] = []
    answered = Event()

    def read(output: IO[bytes]) -> None:
        for line in output:
            if line.startswith(b"ready ") and not answers:
                answers.append(line.split()[1].decode())
                answered.set()
        answered.set()

    assert process.stdout is not None
    Thread(target=read, args=(process.stdout,), name="demo-broker-output", daemon=True).start()
    if not answered.wait(START_TIMEOUT_S):
        raise BarnabasError(f"the brokers are not ready within {START_TIMEOUT_S:.0f} s: see {log}")
    if not answers:
        process.wait(STOP_TIMEOUT_S)
        raise BarnabasError(f"the brokers did not start: {_last_words(log)}")
    return answers[0]


def _last_words(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1].removeprefix("barnabas: ") if lines else "nothing was said"


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
