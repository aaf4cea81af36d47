"""What is to befall a cluster, drawn before anything begins: so that a run can be told again without a part of it."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace

LEADER = 0
"""In place of a broker's number: whoever leads the first partition when its time has come."""
FOLLOWER = -1
"""Another one that is in sync there by then."""
SAME = -2
"""Whom the fault before befell, whatever it is by then."""
QUIET_S = 8.0
"""At most so long on average between two faults; as all times here for a session of `SESSION_S`, in proportion else."""
SESSION_S = 6.0
LEAST_S = 0.05
SOON_S = 0.4
BURST = 0.3
"""So often a fault comes soon after the one before it, since it is in the midst of others' work that bugs show."""
SCRIPTED = 0.6
"""So many of the runs have a script: a few faults that have to do with each other, told again and again."""
AGAIN = 6
"""So often it is told at most."""
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
}
"""Each fault that there is (they are methods of `Nemesis`), and how many seconds it lasts at most."""
IN_SCRIPTS = dict.fromkeys(FAULTS, 1) | {
    "kill": 2,
    "kill_some": 3,
    "isolate": 3,
    "cut": 2,
    "cut_from_tree": 2,
    "expire": 2,
    "slow_tree": 2,
    "lose_power": 2,
    "lose_answers": 2,
}
"""How often each is in a script, in proportion: most that goes wrong begins with a death or with silence."""
ACTS = 0.6
"""So many of the scripts have acts: something that is wrong already, a blow, and what is wrong behind it."""
BEFORE = ("slow_tree", "slow_tree", "lose_answers", "isolate", "isolate", "stop", "cut_from_tree", "slow_down")
BLOWS = ("kill", "kill", "kill_some", "lose_power", "cut_from_tree", "expire", "isolate")
BEHIND = ("isolate", "cut", "kill", "slow_tree", "lose_power", "cut_from_tree")
FOR_ALL = frozenset({"slow_down", "tree_down"})
FOR_SOME = frozenset({"kill_some", "lose_power", "slow_tree", "lose_answers"})
AT_FILE = frozenset({"die_at_file", "lose_power_at_file"})
MOMENTS = ("claim", "join", "leave")
"""What a fault may wait for at the first partition: an epoch is begun, a replica is in sync again, or no longer."""
OPERATIONS = 60
"""Of operations on files, how many later a broker dies at most."""


@dataclass(frozen=True)
class Fault:
    """One thing that befalls a cluster.

    :param at_s: when, in seconds after the first that may.
    :param name: which, of `FAULTS`.
    :param brokers: whom, by number, or `LEADER`, `FOLLOWER`, `SAME`.
    :param for_s: how long, in seconds; for each of the brokers if there are several.
    :param operation: at which of its next operations on files, if it is one `AT_FILE`; 1 is the next one.
    :param share: how much of that operation is done: nothing, all, or, of what is written, so much.
    :param upon: a moment that it waits for, of `MOMENTS`, from `at_s` on. All faults behind it come so much later.
    """

    at_s: float
    name: str
    brokers: tuple[int, ...] = ()
    for_s: tuple[float, ...] = ()
    operation: int = 0
    share: float = 0.0
    upon: str = ""


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


def draw_plan(seed: int, seconds: float, brokers: int, session_s: float) -> Plan:
    """Draw what befalls so many brokers.

    :param session_s: how long the tree waits for a broker; faults last in proportion, since that is what most of what
        brokers do takes its time from.
    """
    # Of its own: what else is drawn for this seed may change, and the plan stays.
    draw = random.Random(f"faults {seed}")
    drawn = _Drawn(draw, brokers, session_s / SESSION_S)
    faults = drawn.apart(seconds)
    if draw.random() < SCRIPTED:
        # Other faults go on beside it in some of the runs only: they end many a story before its point.
        faults = sorted(
            [*(faults if draw.random() < 1 / 3 else ()), *drawn.script(seconds)], key=lambda each: each.at_s
        )
    return Plan(seconds, tuple(faults))


class _Drawn:
    """Draws faults for one run."""

    def __init__(self, draw: random.Random, brokers: int, scale: float) -> None:
        self._draw = draw
        self._numbers = tuple(range(1, brokers + 1))
        self._scale = scale

    def apart(self, seconds: float) -> list[Fault]:
        """Draw faults that have nothing to do with each other, but that some come soon after the one before."""
        draw, scale = self._draw, self._scale
        # Swarm testing: each run draws its own subset, since some faults hide others.
        names = draw.sample(list(FAULTS), draw.randint(1, 5))
        pace_s = draw.choice([1.0, 3.0, QUIET_S]) * scale
        faults: list[Fault] = []
        at_s = 0.0
        while True:
            at_s += draw.uniform(0, SOON_S * scale) if faults and draw.random() < BURST else draw.uniform(0, 2 * pace_s)
            if at_s >= seconds:
                return faults
            whom = LEADER if draw.random() < 1 / 3 else draw.choice(self._numbers)
            faults.append(self._fault(at_s, draw.choice(names), whom))

    def script(self, seconds: float) -> list[Fault]:
        """Draw a few faults of few kinds, most of them for one broker, and often for the leader. They are told several
        times, since what they need to show a bug is there at some times only."""
        draw, scale = self._draw, self._scale
        scene, at_s = self._acts() if draw.random() < ACTS else self._scene()
        pause_s = draw.uniform(1, 2) * SESSION_S * scale
        told = range(min(AGAIN, max(1, int(seconds / (at_s + pause_s)))))
        begin_s = draw.uniform(SOON_S * scale, pause_s)
        faults = [
            replace(fault, at_s=round(begin_s + time * (at_s + pause_s) + fault.at_s, 3))
            for time in told
            for fault in scene
        ]
        return [fault for fault in faults if fault.at_s < seconds]

    def _scene(self) -> tuple[list[Fault], float]:
        """Draw faults of few kinds, and how long they take."""
        draw, scale = self._draw, self._scale
        kinds = draw.choices(list(IN_SCRIPTS), list(IN_SCRIPTS.values()), k=draw.randint(2, 3))
        names = kinds + draw.choices(kinds, k=draw.randint(0, 2))
        draw.shuffle(names)
        scene: list[Fault] = []
        at_s = 0.0
        for name in names:
            known = [SAME] * 5 if scene else [LEADER] * 3
            whom = draw.choice([*known, LEADER, LEADER, FOLLOWER, draw.choice(self._numbers)])
            scene.append(self._fault(at_s, name, whom))
            # Within a step of what the fault before has begun, or when that has come to its end.
            at_s += draw.uniform(0, draw.choice([SOON_S, SESSION_S / 3, SESSION_S * 1.5]) * scale)
        return scene, at_s

    def _acts(self) -> tuple[list[Fault], float]:
        """Draw three acts, and how long they take: each begins by the time that the one before needs to show, and a
        blow or what is behind it may wait until others begin to act on what was before."""
        draw = self._draw
        scene: list[Fault] = []
        at_s = 0.0
        if draw.random() < 2 / 3:
            scene.append(self._act(at_s, draw.choice(BEFORE), draw.choice([LEADER, FOLLOWER, FOLLOWER]), ""))
            at_s += self._span_s(draw.choice([0.0, 0.5]))
        upon = draw.choice(["", "", "leave", "join"]) if scene else ""
        scene.append(self._act(at_s, draw.choice(BLOWS), draw.choice([LEADER, LEADER, FOLLOWER]), upon))
        upon = draw.choice(["", "claim"])
        for _ in range(draw.choice([0, 1, 1, 2])):
            at_s += self._span_s(draw.choice([0.0, 0.0, 0.5]))
            scene.append(self._act(at_s, draw.choice(BEHIND), draw.choice([LEADER, LEADER, SAME, FOLLOWER]), upon))
            upon = ""
        return scene, at_s

    def _act(self, at_s: float, name: str, whom: int, upon: str) -> Fault:
        """Draw a fault that lasts a part of the session's timeout, or more than that: what brokers do takes its time
        from there."""
        draw = self._draw
        fault = replace(self._fault(at_s, name, whom), upon=upon)
        if name in ("kill_some", "cut") and draw.random() < 0.5:
            fault = replace(fault, brokers=(LEADER, FOLLOWER))
        lasting = len(fault.brokers) if name in FOR_SOME else 1
        for_s = self._span_s(draw.choice([0.0, 0.0, 0.5, 1.0]))
        return replace(fault, for_s=(for_s,) * lasting)

    def _span_s(self, least: float) -> float:
        """Draw a time that is a little more than a share of the session's timeout."""
        return round((least + self._draw.choice([0.1, 0.3, 1.0]) * self._draw.random()) * SESSION_S * self._scale, 3)

    def _fault(self, at_s: float, name: str, whom: int) -> Fault:
        draw = self._draw
        brokers: tuple[int, ...] = (whom,)
        if name in FOR_ALL:
            brokers = ()
        elif name in FOR_SOME:
            # One, all, or some.
            brokers = draw.choice([brokers, self._numbers, self._some(draw.randint(1, len(self._numbers)))])
        elif name == "cut":
            brokers = self._some(2) if whom > 0 else (whom, draw.choice(self._numbers))
        lasting = max(1, len(brokers)) if name in FOR_SOME else 1
        for_s = tuple(self._for_s(FAULTS[name] * self._scale) for _ in range(lasting))
        if name not in AT_FILE:
            return Fault(round(at_s, 3), name, brokers, for_s)
        return Fault(
            round(at_s, 3),
            name,
            brokers,
            for_s,
            draw.randint(1, OPERATIONS),
            draw.choice([0.0, round(draw.random(), 2), 1.0]),
        )

    def _some(self, count: int) -> tuple[int, ...]:
        return tuple(self._draw.sample(self._numbers, count))

    def _for_s(self, most_s: float) -> float:
        """Draw a duration: short ones as often as long ones."""
        if most_s <= LEAST_S:
            return 0.0
        return round(math.exp(self._draw.uniform(math.log(LEAST_S), math.log(most_s))), 3)
