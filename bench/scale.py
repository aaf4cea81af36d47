"""How much is measured: the sizes of a run, chosen with `BENCH=smoke|quick|default|full` or `--scale`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scale:
    """Sizes of a run.

    :param rounds: measured runs of each contender, after one that warms up.
    :param stored_gb: how much W11 stores.
    :param limit_s: the longest that one run of a client may take.
    """

    name: str
    rounds: int
    stored_gb: float
    limit_s: float

    @property
    def is_brief(self) -> bool:
        """Whether what matters less is left out."""
        return self.name == "quick"

    def records(self, quick: int, default: int, full: int) -> int:
        """Return a count of records for this scale.

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
"""`smoke` only shows that all works; `full` has the counts of the paper (10 M messages) and the article (50 M)."""
