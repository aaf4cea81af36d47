"""The sizes of a run, chosen with `BENCH=smoke|quick|default|full` or `--scale`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scale:
    """The sizes of a run.

    :param rounds: the number of measured runs of each contender, after a warm-up run.
    :param stored_gb: the gigabytes that W11 stores.
    :param limit_s: the time limit of one run of a client, in seconds.
    """

    name: str
    rounds: int
    stored_gb: float
    limit_s: float

    @property
    def is_brief(self) -> bool:
        """True if less important contenders are omitted."""
        return self.name == "quick"

    def records(self, quick: int, default: int, full: int) -> int:
        """Return the number of records for this scale.

        >>> SCALES["quick"].records(1, 2, 3)
        1
        """
        return {"smoke": quick // 20, "quick": quick, "default": default, "full": full}[self.name]


SCALES = {
    "smoke": Scale("smoke", rounds=1, stored_gb=1, limit_s=60),
    "quick": Scale("quick", rounds=2, stored_gb=2, limit_s=60),
    "default": Scale("default", rounds=5, stored_gb=6, limit_s=120),
    "full": Scale("full", rounds=5, stored_gb=20, limit_s=1200),
}
"""The scale `smoke` only tests the benchmark itself. `full` has the record counts of the paper (10 M messages) and the
article (50 M).
"""
