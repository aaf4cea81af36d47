"""Memory that is held between runs: what they need, within bounds."""

from __future__ import annotations

import resource
from pathlib import Path

from bench import memory


def test_several_times_what_a_run_writes_is_held_and_no_more_than_a_bound() -> None:
    assert memory.bytes_for(1, 100) == 0
    assert memory.bytes_for(3_000_000, 100) == memory.LEAST_BYTES
    assert memory.bytes_for(15_000_000, 100) == 6_000_000_000
    assert memory.bytes_for(50_000_000, 1_000) == memory.MOST_BYTES


def held_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def test_memory_is_there_while_it_is_held_and_free_after_that() -> None:
    reserve, before, size = memory.Reserve(), held_bytes(), 64 * 1024**2
    assert memory.available_bytes() > 2 * size
    for _ in range(2):
        reserve.hold(size)
        assert held_bytes() - before > size * 0.9
        reserve.hold(size // 2)  # is there already
        assert held_bytes() - before > size * 0.9
        reserve.release()
        assert held_bytes() - before < size * 0.1
    reserve.release()
    reserve.hold(0)
    assert held_bytes() - before < size * 0.1
