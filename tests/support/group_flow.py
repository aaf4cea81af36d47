"""Groups at work: records that flow while members come and go, and what all of them together have seen."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.interop.clients.confluent import ConfluentKafka
from tests.interop.clients.neutral import Client, Event, Membership
from tests.support.reading import Member

ROOT = Path(__file__).resolve().parents[2]
PARTITIONS = 4


class Flow:
    """A producer that sends numbers, a few at a time, until it is stopped."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.sent = 0
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(bootstrap, topic), daemon=True)
        self._thread.start()

    def stop(self) -> int:
        """Stop, and return how many numbers, from 0 on, were acknowledged."""
        self._ends.set()
        self._thread.join(60)
        assert not self._thread.is_alive()
        return self.sent

    def _run(self, bootstrap: str, topic: str) -> None:
        with contextlib.closing(ConfluentKafka().producer(bootstrap)) as producer:
            while not self._ends.wait(0.01):
                # With a key each, so that they go to all partitions.
                numbers = range(self.sent, self.sent + 8)
                producer.produce(topic, [Event(b"%d" % n, b"%d" % n) for n in numbers])
                self.sent += 8


def numbers_seen(*members: Member) -> Counter[int]:
    return Counter(int(event.value) for member in members for _, event in member.received)


def shares_all(*members: Member) -> bool:
    """Whether every partition has one owner and every member has a partition."""
    owned = sorted(partition for member in members for partition in member.assigned)
    return owned == list(range(PARTITIONS)) and all(member.assigned for member in members)


MEMBER_PROGRAM = """
import sys
from tests.interop.clients.neutral import Membership
from tests.interop.conftest import CLIENTS

name, bootstrap, topic, group, assignor, session_timeout_ms = sys.argv[1:]
client = next(client for client in CLIENTS if client.name == name)
membership = Membership(group=group, assignor=assignor, session_timeout_ms=int(session_timeout_ms))
consumer = client.consumer(bootstrap, topic, membership)
while True:
    for _, event in consumer.poll(0.1):
        print(event.value.decode(), flush=True)
"""


@contextlib.contextmanager
def member_process(
    client: Client, bootstrap: str, topic: str, membership: Membership, seen: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """A member in a process of its own, which writes the numbers that it receives into the file `seen`."""
    how = [membership.group, membership.assignor, str(membership.session_timeout_ms)]
    command = [sys.executable, "-c", MEMBER_PROGRAM, client.name, bootstrap, topic, *how]
    with seen.open("wb") as output, subprocess.Popen(command, stdout=output, cwd=ROOT) as process:
        try:
            yield process
        finally:
            process.kill()


def numbers_in(seen: Path) -> set[int]:
    return {int(line) for line in seen.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")}
