"""The table of `bench.audit_cost`."""

from __future__ import annotations

from bench.audit_cost import Round, table_lines


def test_ratios_are_of_pairs_and_not_of_medians() -> None:
    # A machine that is half as fast in one round makes no difference to what the audit costs.
    rounds = [
        Round("send", 2e6, 1.98e6, 0.10, 0.101, 0.007, 1_000, 1_190),
        Round("send", 1e6, 0.99e6, 0.20, 0.202, 0.008, 1_200, 1_190),
        Round("many", 4e6, 3.96e6, 0.10, 0.100, 0.010, 1_100, 1_190),
    ]
    assert table_lines(rounds)[2:] == [
        "| `send` | 1,500,000 | 1,485,000 | 0.990 | 0.150 | 0.152 | 1.010 | 0.75% | 1.1 us |",
        "| `many` | 4,000,000 | 3,960,000 | 0.990 | 0.100 | 0.100 | 1.000 | 1.00% | 1.1 us |",
    ]
