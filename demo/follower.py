"""The online consumer: a process that reads the topic in a consumer group while records are produced.

`python -m demo.follower BOOTSTRAP TOPIC RUN COUNT key|partition`

Standard output: lines of JSON, `{"seen": ..., "repeated": ..., "counts": {...}}`, with the counts of this run's
records. Standard input: after shipping, one line of JSON with the end offsets. The process reads up to these offsets,
prints a last line with `"done": true`, commits and ends. It also ends when standard input is closed, because its parent
has ended.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from threading import Thread
from typing import TextIO

from barnabas import Consumer
from barnabas.clock import SYSTEM_CLOCK
from barnabas.errors import BarnabasError
from barnabas.model import TopicPartition
from barnabas.records import Record
from demo.events import ID_HEADER, parse_event_id

REPORT_INTERVAL_S = 0.25
POLL_RECORDS = 10_000
CATCH_UP_TIMEOUT_S = 60.0


@dataclass(slots=True)
class Orders:
    """The input received so far: the end offsets, and whether the input is closed."""

    ends: Mapping[int, int] | None = None
    closed: bool = False

    def listen(self, source: TextIO) -> None:
        """Read the line with the end offsets, then wait until the input is closed."""
        for line in source:
            self.ends = {int(partition): offset for partition, offset in json.loads(line).items()}
        self.closed = True


@dataclass(slots=True)
class Tally:
    """The counts of one run's records. Each record is counted once."""

    run: str
    count: int
    live_count: str
    seen: int = 0
    repeated: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    rows: bytearray = field(init=False)

    def __post_init__(self) -> None:
        self.rows = bytearray(self.count)

    def add(self, record: Record) -> None:
        """Count a record if it belongs to this run."""
        row = next((parse_event_id(self.run, value) for name, value in record.headers if name == ID_HEADER), None)
        if row is None:
            return
        if self.rows[row]:
            self.repeated += 1
            return
        self.rows[row] = 1
        self.seen += 1
        key = record.key.decode() if self.live_count == "key" and record.key else f"partition {record.partition}"
        self.counts[key] += 1

    def line(self, *, done: bool = False) -> str:
        """Return the line for standard output."""
        return json.dumps({"seen": self.seen, "repeated": self.repeated, "counts": self.counts, "done": done})


def follow(consumer: Consumer, topic: str, tally: Tally, orders: Orders, output: TextIO) -> None:
    """Read until the end offsets are reached, or until standard input is closed."""
    clock = SYSTEM_CLOCK
    reported_at = deadline = None
    while not orders.closed:
        for record in consumer.poll(max_records=POLL_RECORDS, timeout_s=REPORT_INTERVAL_S):
            tally.add(record)
        now = clock.monotonic()
        if reported_at is None or now - reported_at >= REPORT_INTERVAL_S:
            print(tally.line(), file=output, flush=True)
            reported_at = now
        if orders.ends is None:
            continue
        deadline = deadline or now + CATCH_UP_TIMEOUT_S
        if _is_at_end(consumer, topic, orders.ends) or now > deadline:
            consumer.commit()
            print(tally.line(done=True), file=output, flush=True)
            return


def _is_at_end(consumer: Consumer, topic: str, ends: Mapping[int, int]) -> bool:
    wanted = {TopicPartition(topic, partition): end for partition, end in ends.items()}
    if not set(wanted) <= set(consumer.assignment()):
        return False
    return all(consumer.position(partition) >= end for partition, end in wanted.items())


def main(arguments: list[str]) -> int:
    """Run the process. Return the exit code."""
    bootstrap, topic, run, count, live_count = arguments
    orders = Orders()
    Thread(target=orders.listen, args=(sys.stdin,), name="follower-orders", daemon=True).start()
    try:
        with Consumer(bootstrap, group=f"demo-{topic}", auto_offset_reset="earliest") as consumer:
            consumer.subscribe(topic)
            follow(consumer, topic, Tally(run, int(count), live_count), orders, sys.stdout)
    except BarnabasError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
