"""Which logs the broker has compacted, in what order, and what becomes of those that cannot be."""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.leader_replica import LeaderReplica
from barnabas.broker.log_cleaner import LogCleaner
from barnabas.broker.replica_storage import ReplicaStorage
from barnabas.clock import ManualClock
from barnabas.storage import LogConfig, LogManager, OsFileSystem
from barnabas.storage.cleaner.cleaner import Cleaner
from barnabas.storage.cleaner.job import CleanedGroup, CleaningFailedError, CleaningJob, Message, UncleanableError
from barnabas.storage.cleaner.swap import begin_swap
from barnabas.storage.log_config import CleanupPolicy
from barnabas.storage.segment import rename_deleted_segments
from bench.compaction.accounts import of_barnabas
from tests.support.compaction_steps import Keyed, keyed_batch, last_values, read_gapped
from tests.support.in_process_broker import Caller, run_with_broker
from tests.support.log_steps import append

COMPACTED = {"cleanup.policy": "compact", "segment.bytes": "1000", "min.cleanable.dirty.ratio": "0.1"}

Run = Callable[..., None]


class ToldCleaner(Cleaner):
    """A cleaner in this process that says what it was asked, and fails where a test wants it to."""

    def __init__(self) -> None:
        super().__init__(OsFileSystem())
        self.jobs: list[CleaningJob] = []
        self.failure: Message = None
        self.before_answer: Callable[[Message], None] = lambda answer: None
        self.ended = 0

    def ask(self, message: Message) -> Message:
        if isinstance(message, CleaningJob):
            self.jobs.append(message)
            if self.failure is not None:
                return self.failure
        answer = super().ask(message)
        self.before_answer(answer)
        return answer

    def end(self) -> None:
        self.ended += 1
        super().end()


class Compacting:
    """A broker, and what compacts its logs when the test says so."""

    def __init__(self, caller: Caller) -> None:
        self.broker = caller.broker
        self.clock = ManualClock()
        self.cleaner = ToldCleaner()
        self.log_cleaner = LogCleaner(
            self.broker.topics.replicas,
            self.broker.topics.replica_logs._logs,
            self.clock,
            lambda: self.broker.config,
            lambda: self.cleaner,
        )

    async def topic(self, name: str, **settings: str) -> LeaderReplica:
        wanted = COMPACTED | {key.replace("_", "."): value for key, value in settings.items()}
        await self.broker.topic_admin.create(name, 1, wanted)
        return self.broker.topics.replicas.leader(name, 0)

    def fill(self, partition: LeaderReplica, count: int = 40, step_ms: int = 1) -> None:
        for number in range(count):
            batch = keyed_batch([Keyed(b"%d" % (number % 4), b"value %d" % number, 1_000 + number * step_ms)])
            append = partition.log.append(batch, partition.leader_epoch)
            assert append.base_offset >= 0
        partition.log.flush()

    def cleaned(self) -> list[str]:
        return [Path(job.folder).name for job in self.cleaner.jobs]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    def run_scenario(scenario: Callable[[Compacting], Coroutine[Any, Any, None]], **settings: Any) -> None:
        async def with_caller(caller: Caller) -> None:
            await scenario(Compacting(caller))

        run_with_broker(tmp_path, with_caller, log_cleaner_enable=False, **settings)

    return run_scenario


def test_the_last_record_of_each_key_is_left(run: Run) -> None:
    async def scenario(compacting: Compacting) -> None:
        states, other = await compacting.topic("states"), await compacting.topic("kept", cleanup_policy="delete")
        compacting.fill(states)
        compacting.fill(other)
        before, size = read_gapped(states.log), states.log.size_bytes
        await compacting.log_cleaner.clean_all()
        after = read_gapped(states.log)
        assert len(before) == 40
        assert len(after) < 20
        assert last_values(after) == last_values(before)
        assert set(after) <= set(before)
        assert states.log.size_bytes < size
        assert states.log.first_dirty_offset == states.log.active_base_offset
        assert len(read_gapped(other.log)) == 40
        assert compacting.cleaned() == ["states-0"]
        checkpoint = Path(compacting.broker.config.data) / "cleaner-offset-checkpoint"
        assert checkpoint.read_text() == f"0\n1\nstates 0 {states.log.first_dirty_offset}\n"

    run(scenario)


def test_a_crash_of_a_topic_no_longer_compacted_leaves_what_is_behind_gaps(run: Run, tmp_path: Path) -> None:
    async def scenario(compacting: Compacting) -> None:
        states = await compacting.topic("states")
        compacting.fill(states)
        await compacting.log_cleaner.clean_all()
        left = read_gapped(states.log)
        crashed = tmp_path / "crashed"
        shutil.copytree(Path(compacting.broker.config.data), crashed)
        logs = LogManager(crashed, LogConfig(), compacting.clock, OsFileSystem())
        recovered = logs.get(states.topic_partition)
        assert recovered is not None
        assert read_gapped(recovered) == left
        assert recovered.log_end_offset == states.log.log_end_offset
        logs.close()

    run(scenario)


def test_what_the_broker_tells_of_it_is_what_was_done(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(compacting: Compacting) -> None:
        states = await compacting.topic("states")
        compacting.fill(states)
        active_bytes = states.log.size_bytes - sum(each.size for each in states.log.segments_before(1_000))
        with caplog.at_level(logging.INFO):
            await compacting.log_cleaner.clean_all()
        (account,) = of_barnabas(caplog.text, "states-0")
        assert account.end_offset == account.records_read == states.log.active_base_offset
        assert account.records_left == len(read_gapped(states.log)) - (40 - account.end_offset)
        assert account.bytes_left == states.log.size_bytes - active_bytes

    run(scenario)


def test_the_dirtiest_log_is_first_and_a_clean_one_is_left_alone(run: Run) -> None:
    async def scenario(compacting: Compacting) -> None:
        first, second = await compacting.topic("a"), await compacting.topic("b")
        compacting.fill(first)
        await compacting.log_cleaner.clean_all()
        compacting.fill(first, 20)
        compacting.fill(second)
        await compacting.log_cleaner.clean_all()
        assert compacting.cleaned() == ["a-0", "b-0", "a-0"]
        await compacting.log_cleaner.clean_all()
        assert len(compacting.cleaner.jobs) == 3

    run(scenario)


def test_many_logs_that_are_due_are_not_all_looked_at_before_each_job(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(compacting: Compacting) -> None:
        names = [f"t{number}" for number in range(8)]
        for number, name in enumerate(names):
            compacting.fill(await compacting.topic(name), 20 + 20 * number)
        looks = []
        find = ReplicaStorage.find_cleanable

        async def counted(storage: ReplicaStorage) -> Any:
            looks.append(storage)
            return await find(storage)

        monkeypatch.setattr(ReplicaStorage, "find_cleanable", counted)
        await compacting.log_cleaner.clean_all()
        assert sorted(compacting.cleaned()) == [f"{name}-0" for name in names]
        assert len(looks) < 4 * len(names)

    run(scenario)


def test_where_memory_does_not_suffice_a_part_is_compacted_and_then_the_rest(run: Run) -> None:
    async def scenario(compacting: Compacting) -> None:
        states = await compacting.topic("states", segment_bytes="100000", min_cleanable_dirty_ratio="0.0")
        records = [Keyed(b"%d" % number, b"", 1) for number in range(60_000)]
        for start in range(0, len(records), 500):
            states.log.append(keyed_batch(records[start : start + 500]), states.leader_epoch)
        states.log.append(keyed_batch([Keyed(b"7", b"new", 1)]), states.leader_epoch)
        states.log.roll()
        states.log.flush()
        await compacting.log_cleaner.clean_all()
        jobs = [job.first_dirty_offset for job in compacting.cleaner.jobs]
        assert jobs == sorted(set(jobs))
        assert len(jobs) > 1
        assert len(read_gapped(states.log, max_bytes=1_000_000)) == 60_000

    run(scenario, log_cleaner_dedupe_buffer_size=2**20, log_cleaner_io_buffer_load_factor=0.5)


def test_a_load_factor_of_nothing_leaves_room_for_a_few_keys(run: Run) -> None:
    async def scenario(compacting: Compacting) -> None:
        states = await compacting.topic("states")
        compacting.fill(states)
        await compacting.log_cleaner.clean_all()
        assert len(read_gapped(states.log)) < 20

    run(scenario, log_cleaner_io_buffer_load_factor=0.0)


def test_what_cannot_be_compacted_is_left_alone_until_its_settings_change(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(compacting: Compacting) -> None:
        states, sound = await compacting.topic("states"), await compacting.topic("sound")
        compacting.fill(states)
        compacting.fill(sound)
        path = states.log.folder / "00000000000000000000.log"
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)
        await compacting.log_cleaner.clean_all()
        compacting.clock.advance(1_000_000)
        await compacting.log_cleaner.clean_all()
        assert sorted(compacting.cleaned()) == ["sound-0", "states-0"]
        told = [record.message for record in caplog.records if "cannot compact" in record.message]
        assert len(told) == 1
        assert "CRC" in told[0]
        assert not [each for each in states.log.folder.iterdir() if each.suffix == ".cleaned"]
        await compacting.broker.topic_admin.alter("states", lambda found: {**found, "delete.retention.ms": "5"})
        await compacting.log_cleaner.clean_all()
        assert compacting.cleaned().count("states-0") == 2

    run(scenario)


def test_after_a_failure_it_is_tried_again_later_each_time(run: Run) -> None:
    async def scenario(compacting: Compacting) -> None:
        states = await compacting.topic("states")
        compacting.fill(states)
        compacting.cleaner.failure = CleaningFailedError("the disk is full")
        tries = []
        for _ in range(10):
            await compacting.log_cleaner.clean_all()
            tries.append(len(compacting.cleaner.jobs))
            compacting.clock.advance(15.0)
        assert tries == [1, 2, 2, 3, 3, 3, 3, 4, 4, 4]
        compacting.cleaner.failure = None
        compacting.clock.advance(3_600.0)
        await compacting.log_cleaner.clean_all()
        assert states.log.first_dirty_offset > 0
        compacting.cleaner.failure = UncleanableError("never")

    run(scenario)


@pytest.mark.parametrize(("merged_bytes", "jobs"), [("500", 1), ("5000", 2)], ids=["whole groups", "part of a group"])
def test_records_that_are_deleted_meanwhile_do_not_come_back(run: Run, merged_bytes: str, jobs: int) -> None:
    async def scenario(compacting: Compacting) -> None:
        states = await compacting.topic("states", segment_bytes="500")
        compacting.fill(states)
        wanted = last_values(read_gapped(states.log))
        await compacting.broker.topic_admin.alter("states", lambda found: {**found, "segment.bytes": merged_bytes})
        start = states.log.segments_before(states.log.log_end_offset)[1].next_offset

        def delete(answer: Message) -> None:
            if isinstance(answer, CleanedGroup) and states.log.log_start_offset == 0:
                states.log.delete_records_before(start)

        compacting.cleaner.before_answer = delete
        await compacting.log_cleaner.clean_all()
        found = read_gapped(states.log)
        assert found[0].offset >= start
        assert last_values(found) == wanted
        assert len(compacting.cleaner.jobs) == jobs

    run(scenario)


def test_nothing_is_taken_away_because_of_records_that_are_cut_off_meanwhile(run: Run) -> None:
    async def scenario(compacting: Compacting) -> None:
        states = await compacting.topic("states")
        compacting.fill(states)
        end = states.log.segments_before(states.log.log_end_offset)[0].next_offset
        wanted = last_values([record for record in read_gapped(states.log) if record.offset < end])

        def cut(answer: Message) -> None:
            if isinstance(answer, CleanedGroup):
                states.log.truncate_to(end)

        compacting.cleaner.before_answer = cut
        await compacting.log_cleaner.clean_all()
        assert last_values(read_gapped(states.log)) == wanted
        assert not list(states.log.folder.glob("*.cleaned"))

    run(scenario)


def test_a_crash_in_a_swap_after_records_were_deleted_meanwhile_loses_nothing(run: Run, tmp_path: Path) -> None:
    async def scenario(compacting: Compacting) -> None:
        states = await compacting.topic("states", segment_bytes="500")
        for number in range(40):
            states.log.append(keyed_batch([Keyed(b"%d" % number, b"value", 1)]), states.leader_epoch)
        states.log.flush()
        start = states.log.segments_before(states.log.log_end_offset)[1].next_offset
        crashed = tmp_path / "crashed"

        def delete(answer: Message) -> None:
            if not isinstance(answer, CleanedGroup):
                return
            if states.log.log_start_offset == 0:
                states.log.delete_records_before(start)
            elif answer.base_offsets[0] >= start and not crashed.exists():
                logs = compacting.broker.topics.replica_logs._logs
                logs.remove_deleted_records()
                shutil.copytree(compacting.broker.config.data, crashed)
                folder = crashed / "states-0"
                begin_swap(OsFileSystem(), folder, answer.base_offsets[0])
                rename_deleted_segments(OsFileSystem(), folder, answer.base_offsets)

        compacting.cleaner.before_answer = delete
        await compacting.log_cleaner.clean_all()
        assert crashed.exists()
        logs = LogManager(
            crashed, LogConfig(cleanup_policy=frozenset({CleanupPolicy.COMPACT})), compacting.clock, OsFileSystem()
        )
        recovered = logs.get(states.topic_partition)
        assert recovered is not None
        assert read_gapped(recovered) == read_gapped(states.log)
        logs.close()

    run(scenario)


def test_a_topic_can_be_deleted_while_it_is_compacted(run: Run) -> None:
    async def scenario(compacting: Compacting) -> None:
        states = await compacting.topic("states")
        compacting.fill(states)
        loop = asyncio.get_running_loop()

        def delete(answer: Message) -> None:
            if isinstance(answer, CleanedGroup):
                compacting.cleaner.before_answer = lambda answer: None
                asyncio.run_coroutine_threadsafe(compacting.broker.topic_admin.delete("states"), loop).result(60)

        compacting.cleaner.before_answer = delete
        await compacting.log_cleaner.clean_all()
        assert compacting.broker.topics.get("states") is None
        anew = await compacting.topic("states")
        assert anew.log.first_dirty_offset == 0
        compacting.fill(anew)
        await compacting.log_cleaner.clean_all()
        assert len(read_gapped(anew.log)) < 20

    run(scenario)


def test_a_segment_is_closed_in_time_to_be_compacted(run: Run) -> None:
    async def scenario(compacting: Compacting) -> None:
        states = await compacting.topic(
            "states", segment_bytes="100000", max_compaction_lag_ms="1", min_cleanable_dirty_ratio="1.0"
        )
        compacting.fill(states, step_ms=0)
        while states.log.active_base_offset == 0:
            await asyncio.sleep(0.01)
            await compacting.log_cleaner.clean_all()
        states.log.flush()
        await compacting.log_cleaner.clean_all()
        assert states.log.active_base_offset == 40
        assert [record.offset for record in read_gapped(states.log)] == [36, 37, 38, 39]

    run(scenario)


def test_offsets_above_the_recovery_point_are_not_compacted(run: Run) -> None:
    async def scenario(compacting: Compacting) -> None:
        states = await compacting.topic("states")
        for number in range(40):
            states.log.append(keyed_batch([Keyed(b"k", b"%d" % number, 1)]), states.leader_epoch)
        assert states.log.segment_count > 2
        await compacting.log_cleaner.clean_all()
        assert compacting.cleaner.jobs == []
        states.log.flush()
        await compacting.log_cleaner.clean_all()
        assert compacting.cleaner.jobs[0].end_offset == states.log.active_base_offset

    run(scenario)


def test_producers_go_on_where_they_were_after_a_compaction_and_a_start(run: Run) -> None:
    def of(sequence: int) -> bytearray:
        record = Keyed(b"k", b"%d" % sequence, 1)
        return keyed_batch([record], producer_id=7, producer_epoch=0, base_sequence=sequence)

    async def scenario(compacting: Compacting) -> None:
        states = await compacting.topic("states")
        for sequence in range(5):
            await append(states, of(sequence))
        for number in range(40):
            await append(states, keyed_batch([Keyed(b"k", b"later %d" % number, 1)]))
        states.log.flush()
        await compacting.log_cleaner.clean_all()
        for snapshot in states.log.folder.glob("*.snapshot"):
            snapshot.unlink()

    async def after(compacting: Compacting) -> None:
        states = compacting.broker.topics.replicas.leader("states", 0)
        assert states.log.first_dirty_offset > 0
        assert (await append(states, of(4))).duplicate
        assert not (await append(states, of(5))).duplicate

    run(scenario)
    run(after)


def test_log_that_is_moved_to_another_folder_is_not_compacted_meanwhile(run: Run) -> None:
    async def scenario(compacting: Compacting) -> None:
        partition = await compacting.topic("states")
        compacting.fill(partition)
        partition.storage.begin_move()
        await compacting.log_cleaner.clean_all()
        assert not compacting.cleaned()
        partition.storage.end_move()
        compacting.log_cleaner._due_until_s = 0.0
        await compacting.log_cleaner.clean_all()
        assert compacting.cleaned()

    run(scenario)
