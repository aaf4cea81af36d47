"""kill -9 of mirrors, of their source and of their target, under load and in any order.

In the end each record of the source is in the target, once and in order; of a compacted topic, what compaction left.
`make faults` has more kills, from a new seed; `MIRROR_SEED=n` has the same ones again.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import barnabas
from barnabas.errors import BarnabasError
from tests.interop.conftest import COMPACTS_SOON
from tests.support.broker_process import BrokerProcess
from tests.support.mirror_process import MirrorProcess, stored
from tests.support.reading import wait_until

KILLS = int(os.environ.get("KILLS", "5"))
SEED = int(os.environ.get("MIRROR_SEED") or (random.SystemRandom().getrandbits(32) if "KILLS" in os.environ else 16))
BETWEEN_KILLS_MAX = 3_000
"""Records that get through."""
STOP_S = 180.0
NUMBERS, KEYS = "numbers", "keys"
PARTITIONS = 3
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.bytes": "20000",
    "min.cleanable.dirty.ratio": "0.01",
    "max.compaction.lag.ms": "100",
}
STEPS = ["mirror"] * 4 + ["source", "target", "all", "paused"]


class Load:
    """Sends numbers round the partitions of one topic, and to keys that come again in another, until it is stopped."""

    def __init__(self, bootstrap: str, between_s: float = 0.02) -> None:
        self._bootstrap = bootstrap
        self._between_s = between_s
        self._ends = threading.Event()
        self._failure: BarnabasError | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop, and wait until everything is acknowledged."""
        self._ends.set()
        self._thread.join(STOP_S)
        assert not self._thread.is_alive()
        assert self._failure is None

    def _run(self) -> None:
        try:
            with barnabas.Producer(self._bootstrap, batch_size=2_000, compression_type="lz4") as producer:
                for number in itertools.count():
                    producer.send(NUMBERS, b"%d" % number, partition=number % PARTITIONS)
                    if number % 5 == 0:
                        producer.send(KEYS, b"%d" % number, key=b"%d" % (number % 40 if number % 3 else number))
                    if number % 200 == 0 and self._ends.wait(self._between_s):
                        return
        except BarnabasError as error:
            self._failure = error


class World:
    """Two clusters, and the mirrors between them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.source, self.target = (
            BrokerProcess(folder / name, {**COMPACTS_SOON, "log_segment_bytes": "200000"}) for name in ("a", "b")
        )
        for broker in (self.source, self.target):
            broker.begin()
        for broker in (self.source, self.target):
            broker.wait_until_ready()
        self.mirrors: list[MirrorProcess] = []
        self._logs = (folder / f"mirror-{number}.log" for number in itertools.count())
        self._there = barnabas.Admin(self.target.bootstrap)

    def start_mirror(self, *options: str) -> MirrorProcess:
        self.mirrors.append(MirrorProcess(self.source.bootstrap, self.target.bootstrap, next(self._logs), *options))
        return self.mirrors[-1]

    def mirror_all(self) -> None:
        self.start_mirror("--topics", f"{NUMBERS}|{KEYS}")

    def do(self, step: str, chance: random.Random) -> None:
        """Have something go wrong, and all go on."""
        if step in {"mirror", "all"}:
            self.kill_mirrors()
        brokers = [self.source] if step == "source" else [self.target] if step == "target" else []
        brokers = [self.source, self.target] if step == "all" else brokers
        for broker in brokers:
            broker.kill()
        for broker in brokers:
            broker.restart()
        if step in {"mirror", "all"}:
            self.mirror_all()
        if step == "paused":
            self._have_two(chance)

    def _have_two(self, chance: random.Random) -> None:
        """A mirror stands still with batches on their way, another one goes on, and the first one awakes."""
        before = self.mirrors[-1]
        before.process.send_signal(signal.SIGSTOP)
        # Not the compacted topic: two at the same time may meet in it, which stops the partition
        # (docs/how-to/mirror.md).
        self.start_mirror("--topics", NUMBERS)
        self.wait_for_progress(chance)
        before.process.send_signal(signal.SIGCONT)

    def wait_for_progress(self, chance: random.Random) -> None:
        goal = self._mirrored() + chance.randrange(1, BETWEEN_KILLS_MAX)
        wait_until(lambda: self._mirrored() >= goal, self.mirrors[-1].log.read_text)

    def _mirrored(self) -> int:
        try:
            if NUMBERS not in self._there.list_topics():
                return 0
            return sum(self._there.end_offsets((NUMBERS, each) for each in range(PARTITIONS)).values())
        except BarnabasError:
            return 0

    def finish(self) -> None:
        """Have a last mirror bring what is left."""
        self.kill_mirrors()
        last = self.start_mirror("--topics", f"{NUMBERS}|{KEYS}", "--once")
        assert last.wait() == 0, last.log.read_text()

    def kill_mirrors(self) -> None:
        for each in self.mirrors:
            each.close()
        self.mirrors.clear()

    def close(self) -> None:
        self._there.close()
        self.kill_mirrors()
        for broker in (self.source, self.target):
            broker.close()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.close()


@pytest.mark.timeout(3_600)
def test_each_record_is_mirrored_once_and_in_order_whoever_is_killed(world: World) -> None:
    story: list[str] = []
    try:
        kill_again_and_again(world, story)
        check_same(world)
    except BaseException as error:
        error.add_note(f"MIRROR_SEED={SEED} KILLS={KILLS}, as far as {len(story)}: {' '.join(story)}")
        raise


def kill_again_and_again(world: World, story: list[str]) -> None:
    """Let things go wrong while records come, and mirror what is left."""
    chance = random.Random(SEED)
    with barnabas.Admin(world.source.bootstrap) as admin:
        admin.create_topic(NUMBERS, PARTITIONS)
        admin.create_topic(KEYS, 1, config=COMPACTED)
    load = Load(world.source.bootstrap)
    world.mirror_all()
    for _ in range(KILLS):
        world.wait_for_progress(chance)
        story.append(chance.choice(STEPS))
        world.do(story[-1], chance)
    load.stop()
    world.finish()


def check_same(world: World) -> None:
    """Check that the target has what the source has, and has it once."""
    assert stored(world.source.bootstrap, NUMBERS) == stored(world.target.bootstrap, NUMBERS)
    there, here = (stored(broker.bootstrap, KEYS)[0] for broker in (world.target, world.source))
    values = [int(each.value or b"") for each in there]
    assert values == sorted(set(values)), "once and in order"
    assert {each.key: each.value for each in there} == {each.key: each.value for each in here}
