"""What looks for records by their time in the middle of a swap, when a segment's files do not have their names yet."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from barnabas.clock import ManualClock
from barnabas.model import OffsetAndTimestamp, TopicPartition
from barnabas.storage import Log, LogConfig, OsFileSystem
from barnabas.storage.log_config import CleanupPolicy
from tests.support.compaction_steps import Keyed, compact, keyed_batch

NOW_MS = 1_000_000
CONFIG = LogConfig(
    segment_bytes=1_000,
    retention_ms=10_000,
    cleanup_policy=frozenset({CleanupPolicy.COMPACT, CleanupPolicy.DELETE}),
)


class WatchedFileSystem(OsFileSystem):
    """Calls something before each renaming."""

    def __init__(self) -> None:
        self.before_replace: Callable[[], None] = lambda: None

    def replace(self, source: Path, target: Path) -> None:
        self.before_replace()
        super().replace(source, target)


def test_a_search_in_the_middle_of_a_swap_looks_into_the_compacted_segment(tmp_path: Path) -> None:
    filesystem, clock = WatchedFileSystem(), ManualClock(NOW_MS)
    log = Log.open(tmp_path / "states-0", TopicPartition("states", 0), CONFIG, clock, filesystem)
    for number in range(40):
        time_ms = NOW_MS if number >= 20 else 5_000
        log.append(keyed_batch([Keyed(b"%02d" % (number % 20), b"value", time_ms)]), 0)
    log.roll()
    log.flush()
    first_end = log.segments_before(40)[0].next_offset
    assert 0 < first_end < 20
    found = []
    deletable = set()

    def search() -> None:
        found.append(log.time_search().first_at(NOW_MS))
        found.append(log.time_search().latest())
        old = log.retention_search()
        deletable.add(old.find() if old else None)

    filesystem.before_replace = search
    compact(log, filesystem, NOW_MS)
    assert len(found) > 20
    assert set(found) == {OffsetAndTimestamp(20, NOW_MS)}
    assert deletable <= {None, first_end}
