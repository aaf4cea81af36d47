"""What is to befall a cluster, decided before anything begins: so that a run can be told again without a part of it.

`drawing` draws plans from seeds, and `Nemesis` carries them out.
"""

from __future__ import annotations

from dataclasses import dataclass

LEADER = 0
"""In place of a broker's number: whoever leads the first partition when its time has come."""
FOLLOWER = -1
"""Another one that is in sync there by then."""
SAME = -2
"""Whom the fault before befell, whatever it is by then."""
FAULTS = {
    "kill": 10.0,
    "kill_some": 10.0,
    "stop": 20.0,
    "cut": 15.0,
    "isolate": 15.0,
    "cut_from_tree": 15.0,
    "expire": 0.0,
    "lose_power": 10.0,
    "die_at_file": 10.0,
    "lose_power_at_file": 10.0,
    "slow_down": 10.0,
    "slow_tree": 10.0,
    "tree_down": 12.0,
    "lose_answers": 6.0,
    "jump_clock": 20.0,
    "restore": 6.0,
}
"""Each fault that there is (they are methods of `Nemesis`), and how many seconds it lasts at most."""
JUMP_S = 365 * 86_400.0
"""The farthest jump of a clock, far beyond every retention time: no data may expire by it."""
FOR_ALL = frozenset({"slow_down", "tree_down"})
FOR_SOME = frozenset({"kill_some", "lose_power", "slow_tree", "lose_answers", "restore"})
DRAWN_APART = frozenset({"restore"})
"""Faults that are drawn apart from the others, so that the plans of seeds without them stay as they were."""
AT_FILE = frozenset({"die_at_file", "lose_power_at_file"})
MOMENTS = ("claim", "join", "leave", "commit")
"""What a fault may wait for at the first partition: an epoch is begun, a replica is in sync again, or no longer, or the
leader's high watermark has moved, which nobody else knows yet."""


@dataclass(frozen=True)
class Fault:
    """One thing that befalls a cluster.

    :param at_s: when, in seconds after the first that may.
    :param name: which, of `FAULTS`.
    :param brokers: whom, by number, or `LEADER`, `FOLLOWER`, `SAME`.
    :param for_s: how long, in seconds; for each of the brokers if there are several.
    :param operation: at which of its next operations on files, if it is one `AT_FILE`; 1 is the next one.
    :param share: how much of that operation is done: nothing, all, or, of what is written, so much; of a clock that
        jumps, how far, as a share of `JUMP_S`, and back if it is less than nothing; of the copies of a disk that is
        restored, from which: 0 is the oldest.
    :param upon: moments that it waits for, of `MOMENTS`, one after the other, from `at_s` on. All faults behind it come
        so much later.
    """

    at_s: float
    name: str
    brokers: tuple[int, ...] = ()
    for_s: tuple[float, ...] = ()
    operation: int = 0
    share: float = 0.0
    upon: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan:
    """All that befalls a cluster; after `seconds` all that still lasts is ended.

    :param scale: what a run's timeouts are multiplied by, where the plan is made for one; otherwise drawn.
    :param machines: how many brokers there are, in the same way.
    :param settings: of the brokers, where it needs others than are drawn.
    """

    seconds: float
    faults: tuple[Fault, ...]
    scale: float | None = None
    machines: int | None = None
    settings: tuple[tuple[str, int | bool], ...] = ()

    def told(self) -> str:
        """Return it as it is written in a test."""
        faults = "".join(f"        {fault!r},\n" for fault in self.faults)
        world = "".join(
            f"    {name}={value!r},\n"
            for name in ("scale", "machines", "settings")
            if (value := getattr(self, name)) not in (None, ())
        )
        return f"Plan(\n    {self.seconds!r},\n    (\n{faults}    ),\n{world})"
