"""Draws what is to befall a cluster from a seed: faults that have nothing to do with each other, and scripts of faults
that have."""

from __future__ import annotations

import math
import random
from dataclasses import replace

from tests.simulation.plan import AT_FILE, DRAWN_APART, FAULTS, FOLLOWER, FOR_ALL, FOR_SOME, LEADER, SAME, Fault, Plan

QUIET_S = 8.0
"""At most so long on average between two faults; as all times here for a session of `SESSION_S`, in proportion else."""
SESSION_S = 6.0
LEAST_S = 0.05
SOON_S = 0.4
BURST = 0.3
"""So often a fault comes soon after the one before it, since it is in the midst of others' work that bugs show."""
SCRIPTED = 0.6
"""So many of the runs have a script: a few faults that have to do with each other, told again and again."""
RESTORED = 0.2
"""In so many of the runs disks are restored from older copies."""
AGAIN = 6
"""So often it is told at most."""
APART = [name for name in FAULTS if name not in DRAWN_APART]
IN_SCRIPTS = dict.fromkeys(APART, 1) | {
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
KINDS = {"scene": 4, "acts": 6, "deposed": 3, "relay": 4}
"""How often each kind of script is drawn, in proportion; each is a method of `_Drawn`."""
BEFORE = ("slow_tree", "slow_tree", "lose_answers", "isolate", "isolate", "stop", "cut_from_tree", "slow_down")
BLOWS = ("kill", "kill", "kill_some", "lose_power", "cut_from_tree", "expire", "isolate")
BEHIND = ("isolate", "cut", "kill", "slow_tree", "lose_power", "cut_from_tree")
DEAFNESS = ("slow_tree", "slow_tree", "lose_answers", "stop", "cut_from_tree", "isolate")
"""What keeps a leader from hearing soon that it is one no longer."""
DEPOSITIONS = ("expire", "expire", "cut_from_tree", "stop")
SILENCES = ("isolate", "isolate", "cut", "stop", "kill")
"""What keeps a replica from hearing of another."""
LEAST_JUMP = 0.000_000_1
"""Of the greatest jump of a clock, its least share."""
OPERATIONS = 60
"""Of operations on files, how many later a broker dies at most."""


def draw_plan(seed: int, seconds: float, brokers: int, session_s: float, *, restores: bool = True) -> Plan:
    """Draw what befalls so many brokers.

    :param session_s: how long the tree waits for a broker; faults last in proportion, since that is what most of what
        brokers do takes its time from.
    :param restores: whether disks may be restored from older copies.
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
    if restores:
        faults += _Drawn(random.Random(f"restored disks {seed}"), brokers, session_s / SESSION_S).restored(seconds)
    return Plan(seconds, tuple(sorted(faults, key=lambda each: each.at_s)))


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
        names = draw.sample(APART, draw.randint(1, 5))
        pace_s = draw.choice([1.0, 3.0, QUIET_S]) * scale
        faults: list[Fault] = []
        at_s = 0.0
        while True:
            at_s += draw.uniform(0, SOON_S * scale) if faults and draw.random() < BURST else draw.uniform(0, 2 * pace_s)
            if at_s >= seconds:
                return faults
            whom = LEADER if draw.random() < 1 / 3 else draw.choice(self._numbers)
            faults.append(self._fault(at_s, draw.choice(names), whom))

    def restored(self, seconds: float) -> list[Fault]:
        """Draw, for some runs, when the disks of which brokers are restored from older copies."""
        draw = self._draw
        if draw.random() >= RESTORED:
            return []
        faults = []
        for _ in range(draw.randint(1, 3)):
            whom = draw.choice([LEADER, FOLLOWER, draw.choice(self._numbers)])
            fault = self._fault(draw.uniform(0, seconds), "restore", whom)
            faults.append(replace(fault, share=round(draw.random() * 0.999, 3)))
        return faults

    def script(self, seconds: float) -> list[Fault]:
        """Draw a few faults of few kinds, most of them for one broker, and often for the leader. They are told several
        times, since what they need to show a bug is there at some times only."""
        draw, scale = self._draw, self._scale
        kind = draw.choices(list(KINDS), list(KINDS.values()))[0]
        scene, at_s = getattr(self, f"_{kind}")()
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
            scene.append(self._act(at_s, draw.choice(BEFORE), draw.choice([LEADER, FOLLOWER, FOLLOWER])))
            at_s += self._span_s(draw.choice([0.0, 0.5]))
        upon: tuple[str, ...] = draw.choice([(), (), ("leave",), ("join",)]) if scene else ()
        scene.append(self._act(at_s, draw.choice(BLOWS), draw.choice([LEADER, LEADER, FOLLOWER]), upon))
        upon = draw.choice([(), ("claim",)])
        for _ in range(draw.choice([0, 1, 1, 2])):
            at_s += self._span_s(draw.choice([0.0, 0.0, 0.5]))
            scene.append(self._act(at_s, draw.choice(BEHIND), draw.choice([LEADER, LEADER, SAME, FOLLOWER]), upon))
            upon = ()
        return scene, at_s

    def _deposed(self) -> tuple[list[Fault], float]:
        """Draw what makes a leader slow to hear, what ends its leadership meanwhile, and what befalls others then."""
        draw = self._draw
        hears_late_s, again_s = self._span_s(0.2), self._span_s(draw.choice([0.0, 0.3]))
        scene = [
            Fault(0.0, draw.choice(DEAFNESS), (LEADER,), (hears_late_s,)),
            self._act(draw.choice([0.1, 1.0]) * draw.random() * hears_late_s, draw.choice(DEPOSITIONS), SAME),
        ]
        if draw.random() < 0.5:
            upon = draw.choice([(), ("claim",), ("claim", "commit"), ("leave",)])
            scene.append(self._act(hears_late_s, draw.choice(BEHIND), draw.choice([LEADER, FOLLOWER]), upon))
        return scene, hears_late_s + again_s

    def _relay(self) -> tuple[list[Fault], float]:
        """Draw what puts a follower out of sync, what befalls those that go on as soon as they do so without it, and
        what keeps these from hearing of each other when it comes back."""
        draw = self._draw
        away_s = self._span_s(draw.choice([0.3, 0.6]))
        scene = [self._silence(0.0, FOLLOWER, away_s)]
        upon = draw.choice([("leave",), ("leave", "commit")])
        blow = draw.choice(["kill", "kill_some", "kill_some", "lose_power"])
        struck = (LEADER, FOLLOWER) if blow == "kill_some" else (LEADER,)
        short_s = tuple(self._span_s(0.0) for _ in struck)
        scene.append(Fault(self._soon_s(), blow, struck, short_s, upon=upon))
        at_s = scene[-1].at_s + self._soon_s()
        upon = draw.choice([(), (), ("claim",)])
        other = self._silence(at_s, draw.choice([LEADER, FOLLOWER]), self._span_s(draw.choice([0.0, 0.5])))
        scene.append(replace(other, upon=upon))
        return scene, max(away_s, at_s)

    def _silence(self, at_s: float, whom: int, for_s: float) -> Fault:
        name = self._draw.choice(SILENCES)
        return Fault(round(at_s, 3), name, (LEADER, FOLLOWER) if name == "cut" else (whom,), (for_s,))

    def _soon_s(self) -> float:
        """Draw how long it takes until something is told to some and not to all, or to all."""
        return round(self._draw.choice([0.001, 0.01, 0.1]) * self._draw.random() + 0.001, 3)

    def _act(self, at_s: float, name: str, whom: int, upon: tuple[str, ...] = ()) -> Fault:
        """Draw a fault that lasts a part of the session's timeout, or more than that: what brokers do takes its time
        from there."""
        draw = self._draw
        fault = replace(self._fault(round(at_s, 3), name, whom), upon=upon)
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
        if name == "jump_clock":
            jump = draw.choice([-1, 1]) * math.exp(draw.uniform(math.log(LEAST_JUMP), 0.0))
            return Fault(round(at_s, 3), name, brokers, for_s, share=round(jump, 6))
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
