"""What a broker does to a log in several steps, some of them on other threads: here one after the other."""

from __future__ import annotations

import asyncio

from barnabas.broker.leader_replica import LeaderReplica
from barnabas.errors import BarnabasError
from barnabas.records.header import Buffer
from barnabas.storage import AppendInfo, Log
from barnabas.storage.log_reader import Batches
from barnabas.storage.segment import IndexDamagedError


def delete_old_segments(log: Log) -> int:
    """Let go of what the settings do not keep; return how many segments."""
    old = log.retention_search()
    if old is None:
        return 0
    if old.is_roll_due:
        log.roll()
    end = old.find()
    if end is None:
        return 0
    if end > log.active_base_offset:
        log.roll()
    before = log.segment_count
    log.delete_records_before(end)
    return before - log.segment_count


def delete_records_before(log: Log, offset: int) -> int:
    """Forget the records before `offset`; return where the log begins now."""
    if log.log_start_offset < offset == log.log_end_offset:
        log.roll()
    return log.delete_records_before(offset)


def read(log: Log, offset: int, max_bytes: int, max_offset: int, min_one_batch: bool = True) -> Batches:
    """Read, and rebuild the damaged indexes of each segment once: a read may use several segments."""
    for _ in range(log.segment_count):
        try:
            return log.read(offset, max_bytes, max_offset, min_one_batch).batches
        except IndexDamagedError as error:
            error.segment.rebuild_indexes(store=True)
    return log.read(offset, max_bytes, max_offset, min_one_batch).batches


async def append(partition: LeaderReplica, records: Buffer) -> AppendInfo:
    """Append the batches of one produce request."""
    outcomes = partition.append_all([records])
    (outcome,) = await outcomes if isinstance(outcomes, asyncio.Future) else outcomes
    if isinstance(outcome, BarnabasError):
        raise outcome
    return outcome


def append_now(partition: LeaderReplica, records: Buffer) -> AppendInfo:
    """Append the batches of one produce request to a partition that need not wait for the disk."""
    outcomes = partition.append_all([records])
    assert isinstance(outcomes, list)
    (outcome,) = outcomes
    if isinstance(outcome, BarnabasError):
        raise outcome
    return outcome
