"""Faults of all kinds, mixed by chance: as many at once as the cluster must bear."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.clock import SYSTEM_CLOCK
from tests.faults.links import Links
from tests.faults.stage import CHROOT, Scenario, Stage
from tests.support.reading import wait_until

ROUNDS = 6
LASTS_S = (0.5, 5.0)
"""A fault lasts between so and so long: shorter than a session, or longer."""
CLOCK_MS_MAX = 3_600_000
DELAY_S = 0.05
LOST_SHARE = 0.05
FAILING_SHARE = 0.2
NEED_ROOM = ("writev", "allocate", "create", "make_folder")
"""What a full disk refuses: to cut a file, or to wait until it is written, needs no room."""

Mend = Callable[[], None]


class Nemesis:
    """Faults that begin one by one; each returns how it is ended, but for those that end with the broker's restart."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._cluster = stage.cluster
        self._random = stage.random
        self.kinds = (
            self.kill,
            self.stop_in_order,
            self.pause,
            self.cut_off_from_zookeeper,
            self.break_way_between_brokers,
            self.cut_off_from_all,
            self.shake_clients,
            self.shake_zookeeper,
            self.jump_clock,
            self.fill_disk,
            self.let_disk_fail,
            self.kill_zookeeper_leader,
            self.pause_zookeeper_leader,
            self.zookeeper_down,
            self.expire_sessions,
            self.delete_registration,
        )

    def _broker(self) -> int:
        return self._random.choice(list(self._cluster.brokers))

    def kill(self) -> Mend:
        """Kill a broker."""
        number = self._broker()
        self._stage.tell(f"broker {number} is killed")
        self._cluster.brokers[number].kill()
        return self._cluster.brokers[number].restart

    def stop_in_order(self) -> Mend:
        """Stop a broker in order."""
        number = self._broker()
        self._stage.tell(f"broker {number} is stopped in order")
        self._cluster.brokers[number].stop()
        return self._cluster.brokers[number].restart

    def pause(self) -> Mend:
        """Let a broker's process stand."""
        number = self._broker()
        self._stage.tell(f"broker {number} stands still")
        self._cluster.pause(number)
        return lambda: self._cluster.go_on(number)

    def cut_off_from_zookeeper(self) -> Mend:
        """Cut or stall the way of a broker to ZooKeeper."""
        number, how = self._broker(), self._random.choice(["cut", "stall"])
        self._stage.tell(f"{how} between broker {number} and ZooKeeper")
        getattr(self._cluster.to_zookeeper[number], how)()
        return self._cluster.to_zookeeper[number].mend

    def break_way_between_brokers(self) -> Mend:
        """Cut, stall or shake the way of one broker to another; the way back may stay."""
        source, target = self._random.sample(list(self._cluster.brokers), 2)
        how = self._random.choice(["cut", "stall", "shake"])
        ways = [self._cluster.way(source, target)]
        if self._random.random() < 0.5:
            ways.append(self._cluster.way(target, source))
        self._stage.tell(f"{how} from broker {source} to {target}{' and back' if len(ways) > 1 else ''}")
        for way in ways:
            if how == "shake":
                way.shake(self._random.randrange(1 << 30), DELAY_S, LOST_SHARE)
            else:
                getattr(way, how)()
        return Links(ways).mend

    def cut_off_from_all(self) -> Mend:
        """Stall all ways of a broker to others, and of others to it; its clients reach it."""
        number = self._broker()
        self._stage.tell(f"broker {number} is cut off from all but its clients")
        others = self._cluster.others(number)
        cut = Links(
            [
                *self._cluster.to_zookeeper[number].all,
                *(self._cluster.way(other, number) for other in others),
                *(self._cluster.way(number, other) for other in others),
            ]
        )
        cut.stall()
        return cut.mend

    def shake_clients(self) -> Mend:
        """Lose connections of a broker's clients, and hold back what they send and get."""
        number = self._broker()
        self._stage.tell(f"clients of broker {number} lose connections")
        self._cluster.for_clients[number].shake(self._random.randrange(1 << 30), DELAY_S / 10, LOST_SHARE)
        return self._cluster.for_clients[number].mend

    def shake_zookeeper(self) -> Mend:
        """Hold back what all brokers and ZooKeeper say to each other."""
        self._stage.tell("ZooKeeper is slow")
        ways = Links([link for links in self._cluster.to_zookeeper.values() for link in links.all])
        ways.shake(self._random.randrange(1 << 30), DELAY_S * 4)
        return ways.mend

    def jump_clock(self) -> Mend:
        """Let a broker's wall clock jump, by at most an hour."""
        number, ms = self._broker(), self._random.randint(-CLOCK_MS_MAX, CLOCK_MS_MAX)
        self._stage.tell(f"the clock of broker {number} jumps by {ms} ms")
        self._cluster.jump_clock(number, ms)
        return lambda: self._cluster.jump_clock(number, 0)

    def fill_disk(self) -> Mend:
        """Let a broker's disk be full."""
        number = self._broker()
        self._stage.tell(f"the disk of broker {number} is full")
        self._cluster.write_errors(number, "ENOSPC", operations=NEED_ROOM)
        return lambda: self._cluster.clear(number)

    def let_disk_fail(self) -> Mend:
        """Let a broker's disk fail now and then. Logs that are offline then are so until a restart."""
        number = self._broker()
        self._stage.tell(f"the disk of broker {number} fails now and then")
        self._cluster.write_errors(number, "EIO", FAILING_SHARE)

        def mend() -> None:
            self._cluster.clear(number)
            self._cluster.brokers[number].kill()
            self._cluster.brokers[number].restart()

        return mend

    def kill_zookeeper_leader(self) -> Mend:
        """Kill ZooKeeper's leader."""
        self._stage.tell(f"ZooKeeper's leader {self._stage.ensemble.kill_leader()} is killed")
        return self._stage.ensemble.heal

    def pause_zookeeper_leader(self) -> Mend:
        """Let ZooKeeper's leader stand."""
        self._stage.tell(f"ZooKeeper's leader {self._stage.ensemble.pause_leader()} stands still")
        return self._stage.ensemble.heal

    def zookeeper_down(self) -> Mend:
        """Kill all ZooKeeper servers."""
        self._stage.tell("all ZooKeeper servers are killed")
        self._stage.ensemble.down()
        return self._stage.ensemble.heal

    def expire_sessions(self) -> Mend:
        """End the sessions of all brokers."""
        self._stage.tell(f"{len(self._stage.ensemble.expire_all(CHROOT))} sessions expire")
        return lambda: None

    def delete_registration(self) -> Mend:
        """Delete a broker's registration, whose session lives on: it must register again by itself."""
        number = self._broker()
        self._stage.tell(f"a stranger deletes the registration of broker {number}")
        self._cluster.forget(number)
        return lambda: wait_until(self._cluster.is_complete, "all brokers know all brokers")


def faults_are_mixed(stage: Stage) -> None:
    """One fault, or one and another, and again: whatever they are, all goes on when they have ended."""
    nemesis = Nemesis(stage)
    told = []
    for _ in range(2 if stage.is_short else ROUNDS):
        strike = stage.random.choice(nemesis.kinds)
        told.append(strike.__name__.replace("_", " "))
        mend = strike()
        SYSTEM_CLOCK.sleep(stage.random.uniform(*LASTS_S))
        with stage.recovery():
            mend()
        if stage.random.random() < 0.5:
            stage.in_sync()
    stage.note(", ".join(told))


SCENARIOS = (Scenario("random", "faults of all kinds, mixed from the seed", faults_are_mixed, servers=3),)
