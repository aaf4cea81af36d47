"""The table of `bench.secured`."""

from __future__ import annotations

from bench.secured import Figure, lines


def test_table_has_medians_and_ratios_to_kafka() -> None:
    figures = [
        Figure("produce send", "barnabas", 3_000.0),
        Figure("produce send", "barnabas", 5_000.0),
        Figure("produce send", "barnabas", 4_000.0),
        Figure("produce send", "kafka", 2_000.0),
        Figure("connections", "barnabas", 2.0, 30.0),
        Figure("connections", "barnabas", 2.0, 40.0),
        Figure("connections", "kafka", 4.0, 400.0),
    ]
    assert list(lines(figures))[2:] == [
        "| produce send | barnabas | 4,000 records/s | 2.00 |  |",
        "| produce send | kafka | 2,000 records/s | 1.00 |  |",
        "| connections | barnabas | 2.00 s | 0.50 | 40.0 ms |",
        "| connections | kafka | 4.00 s | 1.00 | 400.0 ms |",
    ]
