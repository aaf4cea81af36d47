"""What replicas remember of idempotent producers is what is in their logs: no less, or a retry would be stored twice,
and no more, or it would be taken for stored.

Three logs of one partition, of which one is led, in any order of: batches sent once, and again; fetches of followers;
changes of the leader, with the truncation that comes with them; restarts, clean and not; new segments, flushes, and
deletion of the records at the beginning.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from barnabas.clock import ManualClock
from barnabas.errors import ApiError, ErrorCode
from barnabas.model import TopicPartition
from barnabas.records import BatchBuilder
from barnabas.records.scan import BATCHES_KEPT
from barnabas.storage import AppendInfo, Log, LogConfig, OsFileSystem
from tests.support.log_steps import delete_records_before
from tests.support.searches import examples

PARTITION = TopicPartition("clicks", 0)
PRODUCERS = 2
IN_FLIGHT_MAX = 5
REPLICAS = 3
CONFIG = LogConfig(segment_bytes=1_000, index_interval_bytes=200)


class Sent(NamedTuple):
    """A batch that a producer made: it is the same however often it is sent."""

    producer_id: int
    epoch: int
    sequence: int
    count: int

    @property
    def next_sequence(self) -> int:
        return self.sequence + self.count

    def build(self) -> bytearray:
        builder = BatchBuilder()
        builder.append_many(1_000, [b"value"] * self.count)
        return bytearray(
            builder.build(producer_id=self.producer_id, producer_epoch=self.epoch, base_sequence=self.sequence)
        )


class Stored(NamedTuple):
    """Where a log has it."""

    sent: Sent
    base_offset: int

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.sent.count

    @property
    def remembered(self) -> tuple[int, int, int, int]:
        return self.sent.sequence, self.sent.next_sequence - 1, self.base_offset, self.next_offset - 1


class Replica:
    """A log, and the batches that it must have."""

    def __init__(self, folder: Path, clock: ManualClock) -> None:
        self._folder = folder
        self._clock = clock
        self.batches: list[Stored] = []
        self.deleted: list[Stored] = []
        """What was deleted at the beginning; producers may still be known by that, until a restart."""
        self.start = 0
        self.log = self._open(clean=False, recovery_point=0)

    @property
    def end(self) -> int:
        return self.batches[-1].next_offset if self.batches else self.start

    def of(self, producer_id: int) -> list[Stored]:
        """Return the producer's batches in its last epoch that are still there."""
        own = [each for each in self.batches if each.sent.producer_id == producer_id]
        return [each for each in own if each.sent.epoch == own[-1].sent.epoch]

    def truncate(self, offset: int) -> None:
        self.log.truncate_to(offset)
        self.batches = [each for each in self.batches if each.next_offset <= offset]
        self.deleted = [each for each in self.deleted if each.next_offset <= offset]
        self.start = min(self.start, offset)

    def restart(self, *, clean: bool) -> None:
        if clean:
            self.log.close()
        else:
            self.log.abandon()
        self.log = self._open(clean=clean, recovery_point=self.log.recovery_point)

    def _open(self, *, clean: bool, recovery_point: int) -> Log:
        log = Log.open(
            self._folder, PARTITION, CONFIG, self._clock, OsFileSystem(), clean, recovery_point, self.start
        )  # fmt: skip
        log.hold_high_watermark()
        return log


class ReplicasMachine(RuleBasedStateMachine):
    """Model: of each replica the batches in its log; of each producer those that it has made and not given up."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="barnabas-producers-"))
        clock = ManualClock()
        self.replicas = [Replica(self.folder / str(number), clock) for number in range(REPLICAS)]
        self.leader = self.replicas[0]
        self.leader_epoch = 0
        self.made: list[list[Sent]] = [[] for _ in range(PRODUCERS)]
        """By producer: its last batches, which it may send again."""
        self.epochs = [0] * PRODUCERS

    @initialize()
    def begin(self) -> None:
        """Let each replica know the first batch of each producer."""
        for producer_id in range(PRODUCERS):
            self.send(producer_id, 1)
        for replica in self.replicas[1:]:
            self.replicate(replica, PRODUCERS)

    # --- producers ---

    @rule(producer_id=st.integers(0, PRODUCERS - 1), count=st.integers(1, 3))
    def send(self, producer_id: int, count: int) -> None:
        made = self.made[producer_id]
        sequence = made[-1].next_sequence if made else 0
        batch = Sent(producer_id, self.epochs[producer_id], sequence, count)
        self.made[producer_id] = [*made, batch][-IN_FLIGHT_MAX:]
        self.take(batch)

    @rule(producer_id=st.integers(0, PRODUCERS - 1), back=st.integers(1, IN_FLIGHT_MAX))
    def send_again(self, producer_id: int, back: int) -> None:
        """Send some of the last batches again, in their order."""
        for batch in self.made[producer_id][-back:]:
            self.take(batch)

    @rule(producer_id=st.integers(0, PRODUCERS - 1), count=st.integers(1, 3))
    def begin_an_epoch(self, producer_id: int, count: int) -> None:
        self.epochs[producer_id] += 1
        self.made[producer_id] = []
        self.send(producer_id, count)

    def take(self, batch: Sent) -> None:
        """Let the leader judge a batch: stored if it is the next one, known if it is there, and else refused."""
        leader = self.leader
        own = leader.of(batch.producer_id)
        if not own and batch.producer_id in leader.log.producers:
            return  # its batches were deleted here, and not forgotten: until a restart
        is_next = not own or self.is_next(batch, own[-1].sent)
        (outcome,) = leader.log.append_all([batch.build()], self.leader_epoch)
        if isinstance(outcome, ApiError) and outcome.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            # Nothing is known of the producer, which sends again what was not acknowledged.
            assert not own
            assert batch.sequence
            (outcome,) = leader.log.append_all([batch.build()], self.leader_epoch)
        if not isinstance(outcome, AppendInfo):
            assert isinstance(outcome, ApiError)
            assert outcome.code in {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.INVALID_PRODUCER_EPOCH}
            assert batch not in [each.sent for each in own[-BATCHES_KEPT:]]
            assert not is_next
        elif outcome.duplicate:
            assert Stored(batch, outcome.base_offset) in [*leader.deleted, *own]
        else:
            assert is_next
            assert batch not in [each.sent for each in leader.batches]
            leader.batches.append(Stored(batch, leader.end))
            assert outcome[:2] == (leader.batches[-1].base_offset, leader.end - 1)

    @staticmethod
    def is_next(batch: Sent, last: Sent) -> bool:
        if batch.epoch == last.epoch:
            return batch.sequence == last.next_sequence
        return batch.epoch > last.epoch and batch.sequence == 0

    # --- brokers ---

    @rule(number=st.integers(0, REPLICAS - 1), count=st.integers(1, 8))
    def fetch(self, number: int, count: int) -> None:
        self.replicate(self.replicas[number], count)

    def replicate(self, replica: Replica, count: int) -> None:
        leader = self.leader
        if replica is leader:
            return
        if replica.end < leader.start:
            replica.log.truncate_fully_and_start_at(leader.start)
            replica.batches, replica.deleted, replica.start = [], [], leader.start
        behind = [each for each in leader.batches if each.base_offset >= replica.end][:count]
        if behind:
            region = leader.log.read(replica.end, 1 << 20, behind[-1].next_offset).batches
            assert region
            data = leader.log.bytes_of(region)
            replica.log.append_as_follower(data, self.leader_epoch)
            replica.batches += [each for each in behind if each.next_offset <= replica.log.log_end_offset]

    @rule(number=st.integers(0, REPLICAS - 1))
    def elect(self, number: int) -> None:
        """Let any replica lead; the others give up what it does not have."""
        self.leader = leader = self.replicas[number]
        self.leader_epoch += 1
        for replica in self.replicas:
            if replica is leader:
                continue
            # A log that begins behind the leader's end begins anew there.
            same = min(max(replica.start, leader.start), leader.end)
            for theirs in replica.batches:
                if theirs in leader.batches:
                    same = max(same, theirs.next_offset)
                elif theirs.base_offset >= leader.start:
                    break
            if same < replica.end:
                replica.truncate(same)

    @rule(number=st.integers(0, REPLICAS - 1), clean=st.booleans())
    def restart(self, number: int, clean: bool) -> None:
        self.replicas[number].restart(clean=clean)

    @rule(number=st.integers(0, REPLICAS - 1))
    def roll(self, number: int) -> None:
        self.replicas[number].log.roll()

    @rule(number=st.integers(0, REPLICAS - 1))
    def flush(self, number: int) -> None:
        self.replicas[number].log.flush()

    @precondition(lambda self: self.leader.batches)
    @rule(number=st.integers(0, REPLICAS - 1), data=st.data())
    def delete_old_records(self, number: int, data: st.DataObject) -> None:
        """Forget the beginning of a log, at a batch's end and never all of it."""
        replica = self.replicas[number]
        ends = [each.next_offset for each in replica.batches[:-1]]
        if not ends:
            return
        offset = data.draw(st.sampled_from(ends))
        replica.log.move_high_watermark(replica.end)
        delete_records_before(replica.log, offset)
        replica.start = replica.log.log_start_offset
        replica.deleted += [each for each in replica.batches if each.base_offset < replica.start]
        replica.batches = [each for each in replica.batches if each.base_offset >= replica.start]

    # --- what must hold ---

    @invariant()
    def producers_are_as_the_log_says(self) -> None:
        for replica in self.replicas:
            assert replica.log.log_end_offset == replica.end
            known = replica.log.producers
            for producer_id in range(PRODUCERS):
                there = replica.of(producer_id)[-BATCHES_KEPT:]
                if not there:
                    continue
                entry = known[producer_id]
                remembered = [tuple(each[:4]) for each in entry.batches]
                assert entry.epoch == there[-1].sent.epoch
                assert remembered[-len(there) :] == [each.remembered for each in there]
            assert all(each.last_offset < replica.end for entry in known.values() for each in entry.batches)

    def teardown(self) -> None:
        for replica in self.replicas:
            replica.log.abandon()
        shutil.rmtree(self.folder)


TestProducersOfReplicas = ReplicasMachine.TestCase
TestProducersOfReplicas.settings = settings(max_examples=examples(60), stateful_step_count=60, deadline=None)
pytestmark = pytest.mark.timeout(600)
