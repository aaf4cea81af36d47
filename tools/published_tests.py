"""What the scripts that run other clients' published tests share: brokers, which may be killed meanwhile, and a folder
for what they download.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import barnabas
from barnabas import KafkaError

CACHE_FOLDER = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "barnabas"


@contextlib.contextmanager
def broker(data: Path, settings: Mapping[str, str], count: int = 1) -> Iterator[str]:
    """Run a broker on a free port, or several and ZooKeeper, and yield the address.

    :param settings: of each broker, as in its file of settings, with underscores for dots.
    :param count: of brokers.
    """
    several = [] if count == 1 else ["cluster"]
    command = [sys.executable, "-m", "barnabas.cli.main", *several, "up", "--port", "0", "--data", str(data)]
    command += ["--brokers", str(count)] if several else []
    environment = os.environ | {f"BARNABAS_{name.upper()}": value for name, value in settings.items()}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout
            ready, _, address = process.stdout.readline().strip().partition(" ")
            if ready != "ready":
                raise SystemExit("the broker did not start; it says why above")
            yield address
        finally:
            process.terminate()


@contextlib.contextmanager
def killing_brokers(bootstrap: str, data: Path, count: int, pause_s: float) -> Iterator[None]:
    """Kill the brokers of a cluster one after the other, again and again; the cluster starts each anew.

    The next one is killed when all replicas are in sync, and a pause later. At the end all are in sync.

    :param data: the folder of the cluster.
    """
    has_ended = threading.Event()
    killed = 0

    def kill() -> None:
        nonlocal killed
        for number in itertools.cycle(range(1, count + 1)):
            if has_ended.wait(pause_s):
                return
            os.kill(_process_of(data / f"broker-{number}"), signal.SIGKILL)
            killed += 1
            while not (has_ended.wait(0.5) or _are_all_in_sync(bootstrap, count)):
                pass

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield
    finally:
        has_ended.set()
        thread.join()
        sys.stdout.write(f"brokers were killed {killed} times meanwhile\n")


def _process_of(folder: Path) -> int:
    for status in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if str(folder).encode() in status.read_bytes().split(b"\0"):
                return int(status.parent.name)
    raise SystemExit(f"no broker runs in {folder}")


def _are_all_in_sync(bootstrap: str, count: int) -> bool:
    try:
        with barnabas.Admin(bootstrap) as admin:
            topics = admin.describe_topics(admin.list_topics())
            return len(admin.brokers()) == count and all(
                set(each.isr) == set(each.replicas) for topic in topics for each in topic.partitions
            )
    except KafkaError:  # one that is gone, or a topic that was deleted meanwhile
        return False
