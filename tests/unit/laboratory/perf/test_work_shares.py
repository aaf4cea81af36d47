"""How processes share partitions and records."""

from __future__ import annotations

import random

from barnabas.laboratory.perf.work_shares import share_evenly, share_partitions, share_records


def test_each_partition_has_one_reader() -> None:
    for count in range(1, 7):
        shares = share_partitions(range(6), count)
        assert sorted(partition for share in shares for partition in share) == list(range(6))
        assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_records_are_shared_to_the_last_and_none_gets_more_than_there_is() -> None:
    generator = random.Random(1)
    for _ in range(300):
        limits = [generator.choice([0, generator.randrange(100)]) for _ in range(generator.randrange(1, 6))]
        records = generator.randrange(300)
        shares = share_records(records, limits)
        assert sum(shares) == min(records, sum(limits))
        assert all(share <= limit for share, limit in zip(shares, limits, strict=True))


def test_even_shares_differ_by_one_at_most() -> None:
    assert sum(share_evenly(1_000_003, 7)) == 1_000_003
    assert set(share_evenly(10, 4)) == {2, 3}
