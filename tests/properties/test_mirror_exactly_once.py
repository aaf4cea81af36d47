"""A mirrored partition has each record of its source once and in order, whatever befalls the mirrors and their batches.

The target is what a broker is for its producers: a log, and what is remembered of each producer (the storage's own
code). Two mirrors write to it at the same time; batches wait in their connections, and arrive also when the mirror that
sent them is dead. Answers are lost, brokers refuse batches and forget producers, the source is compacted.
"""

from __future__ import annotations

import contextlib
from collections import deque

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from barnabas.errors import ApiError
from barnabas.mirror.errors import ForeignBatchError
from barnabas.mirror.offset_map import OffsetMap
from barnabas.mirror.partition_copy import FRESH_S, Outgoing, PartitionCopy
from barnabas.mirror.resume_search import Ends, ResumeSearch
from barnabas.mirror.target_tail import TargetTail
from barnabas.model import TopicPartition
from barnabas.records import BatchBuilder, read_header, read_records
from barnabas.records.header import stamp
from barnabas.records.mirror_identity import lineage_of
from barnabas.storage.producer_state import ProducerStates
from tests.support.compacted_logs import Batch, Kept
from tests.support.searches import examples

WHERE = TopicPartition("clicks", 0)
LINEAGE = lineage_of("source", b"topic")
MIRRORS = 2


class Source:
    """A log whose values are the offsets of its records."""

    def __init__(self, start: int) -> None:
        self.batches: list[Batch] = []
        self.start = self.end = start

    def append(self, count: int) -> None:
        records = [Kept(self.end + number, 1_000, b"k", b"%d" % (self.end + number)) for number in range(count)]
        self.batches.append(Batch(self.end, self.end + count - 1, records))
        self.end += count

    def compact(self, place: int, keep: int) -> None:
        """Keep those records of a batch whose bits are set; the newest batch is not touched."""
        if len(self.batches) > 1:
            place %= len(self.batches) - 1
            batch = self.batches[place]
            kept = [record for number, record in enumerate(batch.records) if keep >> number % 8 & 1]
            self.batches[place] = batch._replace(records=kept)

    def fetch(self, offset: int, count: int) -> bytes:
        found = [batch for batch in self.batches if batch.last_offset >= offset]
        return b"".join(batch.encode() for batch in found[:count])

    @property
    def offsets(self) -> list[int]:
        return [record.offset for batch in self.batches for record in batch.records]


class Target:
    """A log, and what its broker remembers of producers."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.states = ProducerStates()
        self.end = 0

    def produce(self, batch: bytes) -> int:
        """Return the offset of the batch, which may be there already."""
        header = read_header(batch)
        known = self.states.check(header, 0)
        if known is not None:
            return known.base_offset
        return self.append(batch)

    def append(self, batch: bytes) -> int:
        base = self.end
        header = read_header(batch)
        self.states.update(header, base, 0)
        written = bytearray(batch)
        stamp(written, 0, base, 0)
        self.batches.append(bytes(written))
        self.end = base + header.last_offset_delta + 1
        return base

    def fetch(self, offset: int, count: int) -> bytes:
        found = [batch for batch in self.batches if read_header(batch).last_offset >= offset]
        return b"".join(found[:count])

    @property
    def values(self) -> list[int]:
        return [int(record.value or b"") for batch in self.batches for record in read_records(batch, *WHERE)]


class Mirror:
    """A process that mirrors, and its connection to the target."""

    def __init__(self, source: Source, target: Target, ledger: list[tuple[OffsetMap, int | None]]) -> None:
        self.source, self.target, self.ledger = source, target, ledger
        self.die()
        self.sent: deque[tuple[Outgoing, PartitionCopy]] = deque()
        self.now_s = 0.0

    def place(self) -> None:
        known, origin = (self.copy.offsets, self.copy.origin) if self.copy.offsets else (None, None)
        if known is None and self.ledger:
            known, origin = self.ledger[-1]
        known = None if known is None else OffsetMap.of(known.runs)
        target, source = Ends(0, self.target.end), Ends(self.source.start, self.source.end)
        tail = TargetTail(WHERE, LINEAGE, known, origin, *target)
        steps = ResumeSearch(WHERE, tail, source, target).steps()
        with contextlib.suppress(StopIteration):
            read = next(steps)
            while True:
                log = self.source if read.is_source else self.target
                read = steps.send(memoryview(log.fetch(read.offset, 2)))
        if tail.offsets is None:
            tail.offsets = OffsetMap(self.source.start, self.target.end)
            self.ledger.append((OffsetMap.of(tail.offsets.runs), None))
        self.copy.place(tail.offsets, tail.origin, self.now_s)

    def fetch(self, count: int) -> None:
        if self.copy.wants_data:
            position = self.copy.position
            self.copy.take(self.source.fetch(position, count), position)

    def send(self) -> None:
        if self.copy.is_stale(self.now_s):
            self.copy.forget()
        outgoing = self.copy.next_to_send(self.now_s)
        if outgoing is not None:
            self.sent.append((outgoing, self.copy))

    def deliver(self, *, answered: bool = True, refused: bool = False) -> None:
        """Have the target take the oldest batch that is on its way, and the mirror learn of it, if it lives."""
        if not self.sent:
            return
        outgoing, sender = self.sent.popleft()
        try:
            offset = -1 if refused else self.target.produce(bytes(outgoing.batch))
        except ApiError:
            offset = -1
        if not answered or sender is not self.copy or not sender.is_under_way(outgoing):
            return
        if offset < 0 or not sender.acknowledged(outgoing, offset, self.now_s):
            sender.forget()

    def work(self, *, refused: bool = False) -> None:
        """A little of everything."""
        if not self.copy.is_placed:
            self.place()
        self.fetch(3)
        for _ in range(3):
            self.send()
        self.deliver(refused=refused)
        self.deliver()

    def lose_connection(self) -> None:
        self.copy.forget()

    def die(self) -> None:
        self.copy = PartitionCopy(WHERE, LINEAGE)
        self.copy.may_have_holes = True

    def note(self) -> None:
        if self.copy.offsets is not None:
            self.ledger.append((OffsetMap.of(self.copy.offsets.runs), self.copy.origin))


class World:
    """Two mirrors between one source and one target."""

    def __init__(self, start: int = 0) -> None:
        self.source, self.target = Source(start), Target()
        self.ledger: list[tuple[OffsetMap, int | None]] = []
        self.mirrors = [Mirror(self.source, self.target, self.ledger) for _ in range(MIRRORS)]

    @property
    def is_quiet(self) -> bool:
        return not any(mirror.sent for mirror in self.mirrors)

    def do(self, step: str, who: int, number: int) -> None:
        mirror = self.mirrors[who]
        steps = {
            "append": lambda: self.source.append(1 + number % 5),
            "compact": lambda: self.compact(number),
            "fetch": lambda: mirror.fetch(1 + number % 3) if mirror.copy.is_placed else mirror.place(),
            "send": mirror.send,
            "deliver": mirror.deliver,
            "answer lost": lambda: mirror.deliver(answered=False),
            "refused": lambda: mirror.deliver(refused=True),
            "connection lost": mirror.lose_connection,
            "die": mirror.die,
            "note": mirror.note,
            "work": mirror.work,
            "work refused": lambda: mirror.work(refused=True),
            "producers forgotten": self.forget_producers,
        }
        steps[step]()

    def compact(self, number: int) -> None:
        """A cleaner takes its time; what is on its way does not last so long."""
        if self.is_quiet:
            self.source.compact(number, 1 + number % 255)
            for mirror in self.mirrors:
                mirror.now_s += FRESH_S

    def forget_producers(self) -> None:
        """As brokers do after a day, when nothing of before is on its way any more."""
        if self.is_quiet:
            self.target.states = ProducerStates()
            for mirror in self.mirrors:
                mirror.now_s += 24 * 3_600

    def check(self) -> None:
        values = self.target.values
        assert values == sorted(set(values)), "once and in order"
        if values:
            reached = values[-1]
            missing = {offset for offset in self.source.offsets if offset < reached}.difference(values)
            assert not missing, "nothing is left out"

    def finish(self) -> None:
        """All that was on its way arrives, and one mirror does what is left."""
        for mirror in self.mirrors:
            mirror.lose_connection()
            while mirror.sent:
                mirror.deliver()
        last = self.mirrors[0]
        for _ in range(10_000):
            if not last.copy.is_placed:
                last.place()
            if last.copy.done_to is not None and last.copy.done_to >= self.source.end:
                return
            last.fetch(3)
            for _ in range(3):
                last.send()
            while last.sent:
                last.deliver()
        raise AssertionError("it comes to no end")

    def check_map(self) -> None:
        """Who goes on where the map says has everything that is left to him, in either direction."""
        offsets = self.mirrors[0].copy.offsets
        assert offsets is not None
        values = self.target.values
        for source in range(self.source.start, self.source.end + 1):
            behind = [place for place, value in enumerate(values) if value >= source]
            assert offsets.to_target(source) <= (behind[0] if behind else len(values))
        for target in range(len(values)):
            assert offsets.to_source(target) <= values[target]
        if all(len(batch.records) == batch.last_offset - batch.base_offset + 1 for batch in self.source.batches):
            assert [offsets.to_target(value) for value in values] == list(range(len(values))), "exact without holes"


STEPS = st.sampled_from(
    ["append", "work"] * 3
    + ["fetch", "send", "send", "deliver", "deliver"]
    + ["compact", "compact", "work refused", "refused", "answer lost", "connection lost", "die", "note"]
    + ["producers forgotten"]
)
STEP = st.tuples(STEPS, st.integers(0, MIRRORS - 1), st.integers(0, 10_000))
STORY = st.lists(STEP, min_size=30, max_size=80)
"""Long, since a short one tells of nothing that goes wrong."""


LATE = [
    *[("append", 0, 0)] * 22,
    *[("work", 1, 0)] * 2,
    *[("work", 0, 0)] * 2,
    ("refused", 0, 0),
    ("answer lost", 1, 0),
]
"""What is under way without an answer, until the target has forgotten who sent it."""


@settings(max_examples=examples(300))
@example(0, [], [*LATE, ("producers forgotten", 0, 0), ("work", 1, 0)])
@given(st.integers(0, 70_000), st.lists(st.integers(0, 255), max_size=10), STORY)
def test_each_record_is_there_once_and_in_order(start: int, kept: list[int], steps: list[tuple[str, int, int]]) -> None:
    world = World(start)
    for _ in kept:
        world.source.append(3)
    for place, keep in enumerate(kept):
        world.source.compact(place, keep)
    for step in steps:
        world.do(*step)
        world.check()
    world.finish()
    world.check()
    assert set(world.source.offsets) <= set(world.target.values)
    world.check_map()


@settings(max_examples=examples(100))
@given(
    STORY,
    st.lists(STEP, max_size=10),
    st.booleans(),
)
def test_record_of_somebody_else_is_noticed_wherever_it_comes(
    before: list[tuple[str, int, int]], after: list[tuple[str, int, int]], is_idempotent: bool
) -> None:
    world = World()
    world.source.append(3)
    with pytest.raises(ForeignBatchError, match="wrote offset"):  # noqa: PT012 - anywhere from there on
        for step in before:
            world.do(*step)
        foreign = BatchBuilder()
        foreign.append(0, b"k", b"0")
        world.target.append(bytes(foreign.build(7, 0, 0) if is_idempotent else foreign.build()))
        for step in after:
            world.do(*step)
        for mirror in world.mirrors:
            mirror.deliver()
            mirror.copy.forget()
            mirror.place()


@settings(max_examples=examples(100))
@given(
    STORY,
    st.integers(0, 20),
)
def test_what_the_target_loses_is_mirrored_again(steps: list[tuple[str, int, int]], kept: int) -> None:
    world = World()
    for step in steps:
        if step[0] != "compact":  # what the source has no longer cannot be had again
            world.do(*step)
    for mirror in world.mirrors:
        while mirror.sent:
            mirror.deliver()
        mirror.copy.forget()
    left, world.target.batches = world.target.batches[:kept], []
    world.target.states, world.target.end = ProducerStates(), 0
    for batch in left:
        world.target.append(batch)
    world.finish()
    assert world.target.values == world.source.offsets
