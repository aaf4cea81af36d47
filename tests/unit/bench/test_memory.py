"""What is touched before a run: what it needs, within bounds."""

from __future__ import annotations

from bench import memory


def test_as_much_is_touched_as_a_run_writes_and_no_more_than_a_bound():
    assert memory.bytes_for(1, 100) == memory.LEAST_BYTES
    assert memory.bytes_for(5_000_000, 100) == 750_000_000
    assert memory.bytes_for(50_000_000, 1_000) == memory.BYTES_MAX
