"""What befalls a cluster: deaths, stops, cuts, lost sessions, lost power; which of them, and how often, is drawn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tests.simulation.cluster import Machine, SimulatedCluster
from tests.simulation.ensemble import NAME
from tests.simulation.invariants import Invariants

QUIET_S = 8.0
"""At most so long between two faults."""


class Nemesis:
    """Draws faults."""

    def __init__(self, cluster: SimulatedCluster, invariants: Invariants) -> None:
        self._cluster = cluster
        self._invariants = invariants
        self._world = cluster.world
        draw = self._world.random
        all_faults: list[Callable[[], None]] = [
            self.kill,
            self.kill,
            self.stop,
            self.cut,
            self.cut_from_tree,
            self.expire,
            self.lose_power,
            self.slow_down,
            self.tree_down,
            self.isolate,
        ]
        # Swarm testing: each run draws its own subset, since some faults hide others.
        self._faults = draw.sample(all_faults, draw.randint(1, 5))
        self._pace_s = draw.choice([1.0, 3.0, QUIET_S])

    async def trouble(self, seconds: float) -> None:
        """Make trouble for so long."""
        loop, draw = self._world.loop, self._world.random
        end_s = loop.time() + seconds
        while loop.time() < end_s:
            await asyncio.sleep(draw.uniform(0, 2 * self._pace_s))
            draw.choice(self._faults)()

    def heal(self) -> None:
        """End everything that goes on."""
        cluster = self._cluster
        cluster.network.heal()
        self._tree_up()
        for machine in cluster.machines.values():
            if machine.host is not None and machine.host.is_stopped:
                machine.host.go_on()
            if not machine.is_up:
                machine.start()

    def _a_machine(self) -> Machine | None:
        up = [each for each in self._cluster.machines.values() if each.is_up and each.host and not each.host.is_stopped]
        return self._world.random.choice(up) if up else None

    def _later(self, most_s: float, what: Callable[[], None]) -> None:
        self._world.loop.call_later(self._world.random.uniform(0.05, most_s), what)

    def kill(self) -> None:
        machine = self._a_machine()
        if machine is None:
            return
        self._world.tell(f"{machine.name} is killed")
        machine.kill()
        self._later(10.0, lambda: None if machine.is_up else machine.start())

    def lose_power(self) -> None:
        # All that were in sync may not lose their memory at once: nothing promises anything then.
        down = [each for each in self._cluster.machines.values() if not each.is_up]
        machine = self._a_machine()
        if machine is None or down or not self._invariants.is_whole():
            return
        self._world.tell(f"{machine.name} loses its power")
        machine.lose_power()
        self._later(10.0, lambda: None if machine.is_up else machine.start())

    def stop(self) -> None:
        machine = self._a_machine()
        if machine is None:
            return
        host = machine.host
        assert host
        self._world.tell(f"{machine.name} is stopped")
        host.stop()

        def go_on() -> None:
            if host.is_stopped and host.is_alive:
                self._world.tell(f"{machine.name} goes on")
                host.go_on()

        self._later(20.0, go_on)

    def cut(self) -> None:
        draw = self._world.random
        names = [machine.name for machine in self._cluster.machines.values()]
        one, other = draw.sample(names, 2)
        links = draw.choice([{(one, other), (other, one)}, {(one, other)}])
        self._cut(links, f"{one} is cut off from {other}" + (" in one direction" if len(links) == 1 else ""))

    def isolate(self) -> None:
        draw = self._world.random
        names = [machine.name for machine in self._cluster.machines.values()]
        one = draw.choice(names)
        self._cut(
            {(one, each) for each in names if each != one} | {(each, one) for each in names if each != one},
            f"{one} is cut off from all other brokers",
        )

    def cut_from_tree(self) -> None:
        name = self._world.random.choice([machine.name for machine in self._cluster.machines.values()])
        self._cut({(name, NAME), (NAME, name)}, f"{name} is cut off from ZooKeeper")

    def _cut(self, links: set[tuple[str, str]], what: str) -> None:
        self._world.tell(what)
        network = self._cluster.network
        network.cut |= links

        def heal() -> None:
            if links & network.cut:
                self._world.tell(f"no longer: {what}")
                network.mend(links)

        self._later(15.0, heal)

    def slow_down(self) -> None:
        network = self._cluster.network
        network.slow = 0.3
        self._world.tell("the network is slow")

        def fast() -> None:
            network.slow = 0.0

        self._later(10.0, fast)

    def expire(self) -> None:
        ensemble = self._cluster.ensemble
        if ensemble.sessions:
            session = ensemble.sessions[self._world.random.choice(sorted(ensemble.sessions))]
            self._world.tell(f"the session of {session.host_name} is lost")
            ensemble.expire(session)

    def tree_down(self) -> None:
        self._world.tell("ZooKeeper is down")
        self._cluster.ensemble.is_up = False
        self._later(12.0, self._tree_up)

    def _tree_up(self) -> None:
        if not self._cluster.ensemble.is_up:
            self._world.tell("ZooKeeper is up")
            self._cluster.ensemble.come_back()
