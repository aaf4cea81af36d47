"""A consumer in a process of its own that polls when it is told to: so a test knows what it was handed before and what
after anything else that happened, without a look at a clock."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

import barnabas
from barnabas.clock import SYSTEM_CLOCK
from tests.support.owner_history import Handed

FOLDER = Path(__file__).parents[2]


class DrivenConsumer:
    """:param topic: what it subscribes to.

    :param group: by default the topic's name.
    :param records_max: how many records a poll brings at most.
    :param settings: of `barnabas.Consumer`.
    """

    def __init__(
        self, bootstrap: str, topic: str, *, group: str | None = None, records_max: int = 20, **settings: Any
    ) -> None:
        given = [bootstrap, topic, str(records_max), json.dumps({"group": group or topic, **settings})]
        command = [sys.executable, "-m", "tests.support.driven_consumer", *given]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, cwd=FOLDER
        )
        self.values: set[int] = set()
        """Of all records that it was handed, those that are numbers."""
        self.places: set[tuple[int, int]] = set()
        """Partitions and offsets of all records that it was handed."""
        self.handed: list[Handed] = []
        """What its polls brought, of which partitions and when."""
        self.assigned = 0
        """How many partitions it has, as it said last."""
        self.consumer_id: str = self._ask("id")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.go_on()
        self.kill()

    def _ask(self, command: str) -> Any:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(f"{command}\n")
        return json.loads(self.process.stdout.readline())

    def poll(self) -> set[int]:
        """Let it poll once; returns the partitions of the records that it was handed."""
        begin_s = SYSTEM_CLOCK.monotonic()
        answer = self._ask("poll")
        end_s = SYSTEM_CLOCK.monotonic()
        records = answer["records"]
        partitions = {partition for partition, _, _ in records}
        self.handed += [Handed(partition, self.consumer_id, begin_s, end_s) for partition in partitions]
        self.values.update(int(value) for _, _, value in records if value.isdigit())
        self.places.update((partition, offset) for partition, offset, _ in records)
        self.assigned = answer["assigned"]
        return partitions

    def buffered_bytes(self) -> int:
        """How much it has fetched ahead."""
        buffered: int = self._ask("buffered")
        return buffered

    def stop(self) -> None:
        """Stop the process where it stands (SIGSTOP), which is between two polls."""
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let it go on (SIGCONT)."""
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kill the process."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe
            pipe.close()


def _serve(bootstrap: str, topic: str, records_max: int, settings: dict[str, Any]) -> None:
    consumer = barnabas.Consumer(bootstrap, **settings)
    consumer.subscribe(topic)
    for command in sys.stdin:
        answer: Any
        if command == "poll\n":
            records = consumer.poll(max_records=records_max, timeout_s=0.2)
            handed = [(record.partition, record.offset, (record.value or b"").decode()) for record in records]
            answer = {"records": handed, "assigned": len(consumer.assignment())}
        elif command == "buffered\n":
            answer = consumer.metrics()["buffered_bytes"]
        else:
            standing = consumer._core.state.membership
            answer = getattr(standing, "consumer_id", "")
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _serve(sys.argv[1], sys.argv[2], int(sys.argv[3]), json.loads(sys.argv[4]))
