"""Topics whose logs are compacted, with few keys: whatever befalls the brokers, the last value of each key is there.

Offsets keep their records, nothing is invented, and the replicas agree on the last value of each key. Who was away
while the tombstone of a key went may have what it deleted (`tombstones.py`).
"""

from __future__ import annotations

import asyncio
import functools
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from barnabas.errors import BarnabasError
from barnabas.laboratory.history import Outcome
from barnabas.model import TopicPartition
from barnabas.records import Record
from barnabas.storage.cleaner.job import CleanedGroup
from barnabas.storage.cleaner.rewriting import Cleaning
from barnabas.storage.cleaner.swap import cleaned_paths
from barnabas.storage.segment import SealedSegment
from tests.simulation.clients import SimulatedClient, SimulatedReader, SimulatedSender
from tests.simulation.invariants import bytes_between
from tests.simulation.tombstones import Rewritten, Tombstones, records_in
from tests.simulation.workload import REPLICAS, SAFE, Workload

TOPIC = "states"
KEYS = 6
END_S = 60.0


@dataclass
class KeyedWrite:
    """One record that was sent; `offset` is known of those that were acknowledged."""

    value: bytes | None
    outcome: Outcome = Outcome.INFO
    offset: int | None = None


@dataclass
class Table:
    """All that was sent to one place, by key and in order, and what anybody saw there, by offset.

    :param say: told what is broken.
    """

    place: TopicPartition
    say: Callable[[str], None]
    writes: dict[bytes, list[KeyedWrite]] = field(default_factory=lambda: defaultdict(list))
    seen: dict[int, tuple[bytes, bytes | None]] = field(default_factory=dict)

    def see(self, record: Record, who: str) -> None:
        """Check a record that was read: it was sent, and stands where it stood before."""
        key, value = bytes(record.key or b""), None if record.value is None else bytes(record.value)
        known = self.seen.setdefault(record.offset, (key, value))
        if known != (key, value):
            self.say(f"{self.place}, offset {record.offset}: {who} found {(key, value)}, and it was {known}")
        elif all(each.value != value or each.outcome is Outcome.FAIL for each in self.writes[key]):
            self.say(f"{self.place}, offset {record.offset}: nobody sent what {who} found, {(key, value)}")

    def check(
        self,
        last: Mapping[bytes, Record],
        before: Mapping[bytes, int],
        who: str,
        may_lack: Callable[[bytes, int], bool],
    ) -> None:
        """Check what somebody came to who read everything.

        :param last: the last record of each key that has one.
        :param before: what `acknowledged` told when the reading began.
        :param may_lack: whether a key may have an older record than its last, which is at an offset: a tombstone from
            there on had gone when it was to be told.
        """
        for key, latest in before.items():
            writes, offset = self.writes[key], self.writes[key][latest].offset
            assert offset is not None
            found = last.get(key)
            if found is None:
                # A tombstone deletes its key, and then goes itself. One of which nobody knows may be late.
                if all(each.value is not None for each in writes[latest:]) and not self._may_be_late(key, latest):
                    self.say(f"{self.place}: {who} found nothing of {key!r}, and {writes[latest]} was acknowledged")
            elif found.offset < offset and not may_lack(key, offset):
                self.say(
                    f"{self.place}: the last that {who} found of {key!r} is at offset {found.offset}, "
                    f"and {writes[latest]} was acknowledged"
                )

    def _may_be_late(self, key: bytes, latest: int) -> bool:
        return any(each.value is None and each.outcome is Outcome.INFO for each in self.writes[key][:latest])

    def acknowledged(self) -> dict[bytes, int]:
        """Return which write of each key is the last that was acknowledged with its offset."""
        return {
            key: number
            for key, writes in self.writes.items()
            for number, write in enumerate(writes)
            if write.outcome is Outcome.OK and write.offset is not None
        }


class KeyedWriter(SimulatedSender):
    """Changes keys, and deletes some."""

    def __init__(self, workload: Compaction, name: str, table: Table) -> None:
        super().__init__(workload.cluster, name, table.place)
        self._table = table

    async def run(self, pace_s: float, tombstones: float) -> None:
        """Write until told to stop."""
        draw = self.world.random
        number = 0
        while not self.is_done:
            sent = []
            for _ in range(draw.randint(1, 3)):
                number += 1
                value = None if draw.random() < tombstones else f"{number}".encode() * draw.randint(1, 20)
                sent.append((f"key {draw.randrange(KEYS)}".encode(), KeyedWrite(value)))
            for key, write in sent:
                self._table.writes[key].append(write)
            outcome, base_offset, _ = await self.deliver([(key, write.value) for key, write in sent])
            for each, (_, write) in enumerate(sent):
                write.outcome = outcome
                write.offset = None if base_offset is None else base_offset + each
            await asyncio.sleep(draw.uniform(0, 2 * pace_s))


class TableReader(SimulatedReader):
    """Reads everything from the beginning, again and again."""

    def __init__(self, workload: Compaction, name: str, table: Table) -> None:
        super().__init__(workload.cluster, name, table.place, workload.history)
        self._workload = workload
        self._table = table
        self._last: dict[bytes, Record] = {}
        self._asked: set[int] = set()

    async def leader_of(self, place: TopicPartition) -> int:
        leader = await super().leader_of(place)
        self._asked.add(leader)
        return leader

    def take(self, started: float, records: list[Record]) -> None:
        del started
        for record in records:
            self._table.see(record, self.name)
            self._last[bytes(record.key or b"")] = record

    async def read_all(self) -> bool:
        """Read all that there is, and check what it comes to.

        :raises BarnabasError: as brokers and the network say.
        """
        self.position, before, since = 0, self._table.acknowledged(), self._workload.tombstones.gone_count
        self._last.clear()
        self._asked.clear()
        newest = max((self._table.writes[key][latest].offset or 0 for key, latest in before.items()), default=-1)
        while True:
            await self.fetch()
            # A leader that was stopped may tell, before it hears that it leads no longer, where its log ended then.
            if self.position >= await self.end() and self.position > newest:
                self._table.check(self._last, before, self.name, lambda key, offset: self._may_lack(key, offset, since))
                return True

    def _may_lack(self, key: bytes, offset: int, since: int) -> bool:
        """Whether a tombstone went while this one read, or was never in the log that it read, or may have been in one
        of several only."""
        tombstones = self._workload.tombstones
        if len(self._asked) > 1 or tombstones.gone(key, offset, since=since):
            return bool(tombstones.gone(key, offset))
        return any(self._workload.never_had(number, key, offset) for number in self._asked)

    async def run(self) -> None:
        while not self.is_done:
            try:
                await self.read_all()
            except BarnabasError:
                await self.again()
            await asyncio.sleep(self.world.random.uniform(0, 4.0))


class Compaction(Workload):
    """The topic, its writers and readers."""

    settings: ClassVar[dict[str, Any]] = {"log_cleaner_enable": True, "log_cleaner_backoff_ms": 500}

    async def begin(self, topic: str, partitions: int) -> None:
        del topic, partitions
        draw = self.world.random
        configs = {
            **SAFE,
            "cleanup.policy": "compact",
            "segment.bytes": str(draw.choice([1_000, 4_000])),
            "segment.ms": str(draw.choice([2_000, 60_000])),
            "min.cleanable.dirty.ratio": draw.choice(["0.01", "0.5"]),
            "delete.retention.ms": str(retention_ms := draw.choice([0, 1_000, 10_000])),
            "flush.messages": str(draw.choice([1, 5, 1_000_000])),
        }
        admin = SimulatedClient(self.cluster, "admin of states", (TOPIC,))
        await self.on(admin, admin.create_topic(TOPIC, 1, REPLICAS, configs))
        place = TopicPartition(TOPIC, 0)
        self.invariants.watch([place])
        self._table = Table(place, self.say)
        self.tombstones = Tombstones(place, retention_ms, self.say)
        self.invariants.on_end.append(self._note_end)
        self.invariants.on_rewritten.append(self._note_rewritten)
        self._writer = KeyedWriter(self, "writer of states", self._table)
        self._reader = TableReader(self, "reader of states", self._table)
        self.start(self._writer.host, self._writer.run(draw.choice([0.05, 0.2]), draw.choice([0.0, 0.2])))
        self.start(self._reader.host, self._reader.run())

    def heal(self) -> None:
        self._writer.is_done = self._reader.is_done = True

    async def finish(self, at_end: Mapping[TopicPartition, list[int]]) -> bool:
        del at_end
        await self.end_tasks()
        last = TableReader(self, "last reader of states", self._table)
        whole = bool(await self.on(last, self.until(last.read_all, END_S, last)))
        self._check_replicas()
        return whole

    def _check_replicas(self) -> None:
        """Check that each replica in sync has, of what all have, the last value of each key."""
        place = self._table.place
        state = self.invariants.state_of(place)
        if state is None:
            self.say(f"{place} is gone")
            return
        logs = {number: self.invariants.log_of(number, place) for number in state.isr}
        for number, log in logs.items():
            if log is None:
                self.say(f"{place}: broker {number} has no log")
                continue
            last: dict[bytes, Record] = {}
            for record in records_in(bytes_between(log, log.log_start_offset, log.log_end_offset), place):
                self._table.see(record, f"broker {number}")
                last[bytes(record.key or b"")] = record
            never_had = functools.partial(self.never_had, number)
            self._table.check(last, self._table.acknowledged(), f"broker {number}", never_had)

    def never_had(self, number: int, key: bytes, offset: int) -> bool:
        """Whether there was a tombstone of a key, from an offset on, that had gone when a broker came there."""
        log = self.invariants.log_of(number, self._table.place)
        batches = b"" if log is None else bytes_between(log, log.log_start_offset, log.log_end_offset)
        return bool(self.tombstones.missed(number, self.tombstones.gone(key, offset), batches))

    def _note_end(self, number: int, place: TopicPartition, end: int) -> None:
        if place == self._table.place:
            self.tombstones.note_end(number, end)

    def _note_rewritten(self, number: int, cleaning: Cleaning, group: CleanedGroup) -> None:
        job = cleaning._job
        if Path(job.folder).name != str(self._table.place):
            return
        files, keys = cleaning._filesystem, cleaning._map
        sizes = {segment.base_offset: segment.size for segment in job.segments}
        before = b"".join(
            files.read_all(SealedSegment(files, Path(job.folder), base, size=sizes[base], next_offset=base).file)
            for base in group.base_offsets
        )
        after = files.read_all(files.open(cleaned_paths(Path(job.folder), group.base_offsets[0])[0], writable=False))

        def is_superseded(key: bytes, offset: int) -> bool:
            latest = keys.latest(key)
            return latest is not None and latest > offset

        self.tombstones.note_rewritten(number, Rewritten(before, after, job.now_ms, is_superseded))
