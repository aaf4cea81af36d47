"""`barnabas mirror` in a process of its own, and what two clusters hold, to be compared."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import barnabas
from barnabas.model import TopicPartition

TIMEOUT_S = 120
POLL_S = 0.2


class Stored(NamedTuple):
    """A record as it is stored, but for its offset."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int


class MirrorProcess:
    """A mirror that runs until it is stopped, killed, or done (`--once`)."""

    def __init__(self, source: str, target: str, log: Path, *options: str) -> None:
        self.log = log
        command = [sys.executable, "-m", "barnabas.cli.main", "mirror", "--from", source, "--to", target, "--json"]
        with log.open("ab") as lines:
            self.process = subprocess.Popen([*command, "--refresh", "0.2s", *options], stdout=lines, stderr=lines)

    @property
    def events(self) -> list[dict[str, Any]]:
        """What it has told up to now."""
        lines = self.log.read_text().splitlines()
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]

    def said(self, event: str) -> list[dict[str, Any]]:
        """Return what it has told of one kind."""
        return [each for each in self.events if each["event"] == event]

    @property
    def waits(self) -> set[str]:
        """What it has said to be waiting, and not to be well again."""
        last = {each["about"]: each["event"] for each in self.events if each["event"] in ("waiting", "well again")}
        return {about for about, event in last.items() if event == "waiting"}

    def wait(self) -> int:
        """Wait until it is done; return its exit code."""
        return self.process.wait(TIMEOUT_S)

    def kill(self) -> None:
        """Kill it as `kill -9` does."""
        self.process.kill()
        self.wait()

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Stop it cleanly; return its exit code."""
        self.process.send_signal(number)
        return self.wait()

    def close(self) -> None:
        """End it, however it stands."""
        if self.process.poll() is None:
            self.kill()


def stored(bootstrap: str, topic: str) -> dict[int, list[Stored]]:
    """Return all records of a topic, by partition and in their order."""
    with barnabas.Admin(bootstrap) as admin:
        partitions = [TopicPartition(topic, each.partition) for each in admin.describe_topics([topic])[0].partitions]
        begins, ends = admin.beginning_offsets(partitions), admin.end_offsets(partitions)
    found: dict[int, list[Stored]] = {}
    with barnabas.Consumer(bootstrap) as consumer:
        for tp in partitions:
            consumer.assign([tp])
            consumer.seek(tp, begins[tp])
            records = found[tp.partition] = []
            while consumer.position(tp) < ends[tp]:
                records += [
                    Stored(each.key, each.value, tuple(each.headers), each.timestamp_ms)
                    for each in consumer.poll(timeout_s=POLL_S)
                ]
    return found
