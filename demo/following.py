"""The parent's side of the online consumer: it starts the process, reads the counts from it, and sends the end offsets
to it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread

from barnabas.errors import BarnabasError
from barnabas.model import TopicPartition
from demo.events import Feed

CATCH_UP_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class Seen:
    """The counts that the online consumer reports for this run."""

    records: int = 0
    repeated: int = 0
    counts: Mapping[str, int] | None = None
    done: bool = False


class Following:
    """A running online consumer."""

    def __init__(self, process: subprocess.Popen[str], log: Path, on_seen: Callable[[Seen], None]) -> None:
        self._process = process
        self._log = log
        self._on_seen = on_seen
        self._last = Seen()
        self._ended = Event()
        Thread(target=self._listen, name="demo-follower-output", daemon=True).start()

    def finish(self, ends: Mapping[TopicPartition, int]) -> Seen:
        """Let the consumer read up to `ends`. Return its counts of this run.

        :raises BarnabasError: if the consumer fails, or does not reach the end in time.
        """
        order = {partition.partition: offset for partition, offset in ends.items()}
        assert self._process.stdin is not None
        try:
            print(json.dumps(order), file=self._process.stdin, flush=True)
        except BrokenPipeError:
            self._ended.wait(STOP_TIMEOUT_S)
        if not self._ended.wait(CATCH_UP_TIMEOUT_S):
            raise BarnabasError(f"the online consumer did not reach the end offsets within {CATCH_UP_TIMEOUT_S:.0f} s")
        if not self._last.done:
            lines = self._log.read_text(errors="replace").strip().splitlines()
            raise BarnabasError(f"the online consumer failed: {lines[-1] if lines else 'no error message'}")
        return self._last

    def stop(self) -> None:
        """Stop the process if it is still running."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            counts = json.loads(line)
            self._last = Seen(counts["seen"], counts["repeated"], counts["counts"], counts["done"])
            self._on_seen(self._last)
            if self._last.done:
                break
        self._ended.set()


@contextmanager
def following(bootstrap: str, feed: Feed, run: str, log: Path, on_seen: Callable[[Seen], None]) -> Iterator[Following]:
    """Run an online consumer in a separate process.

    :param on_seen: called with new counts from another thread.
    """
    command = [sys.executable, "-m", "demo.follower", bootstrap, feed.topic, run, str(feed.count), feed.live_count]
    with log.open("wb") as errors:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        )
    follower = Following(process, log, on_seen)
    try:
        yield follower
    finally:
        follower.stop()
