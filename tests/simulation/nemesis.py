"""Carries out what is to befall a cluster: deaths, stops, cuts, lost sessions, lost power, restored disks."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from tests.simulation.cluster import Machine, SimulatedCluster
from tests.simulation.disk import Death
from tests.simulation.ensemble import NAME
from tests.simulation.invariants import Invariants
from tests.simulation.moments import Moments
from tests.simulation.plan import FOLLOWER, JUMP_S, LEADER, SAME, Fault, Plan

SLOW_SHARE = 0.3
PATIENCE = 2.0
"""So many session timeouts a fault waits for its moment; without it it comes then."""


class Nemesis:
    """Carries out a plan."""

    def __init__(self, cluster: SimulatedCluster, invariants: Invariants, plan: Plan) -> None:
        self._cluster = cluster
        self._invariants = invariants
        self._world = cluster.world
        self._plan = plan
        self._is_over = False
        self._same = 1
        """Whom the fault before befell."""
        self._moments = Moments(invariants)

    async def trouble(self) -> None:
        """Make all the trouble that there is in the plan, as far as there is time for it."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._plan.seconds):
                await self._befall()
                await asyncio.Event().wait()

    async def _befall(self) -> None:
        loop = self._world.loop
        begin_s = loop.time()
        for fault in self._plan.faults:
            await asyncio.sleep(begin_s + fault.at_s - loop.time())
            from_s = loop.time()
            for moment in fault.upon:
                await self._moments.next(moment, PATIENCE * self._cluster.ensemble.session_timeout_s)
            begin_s += loop.time() - from_s
            if any(each.name == "restore" for each in self._plan.faults):
                for machine in self._cluster.machines.values():
                    machine.copy_disk()
            getattr(self, f"_{fault.name}")(self._meant(fault))

    def _meant(self, fault: Fault) -> Fault:
        """Return a fault with the brokers that it means by now."""
        numbers = tuple(self._number(number) for number in fault.brokers)
        if len(set(numbers)) < len(numbers):
            # A link has two ends: the other one is whoever is next.
            numbers = (numbers[0], numbers[0] % len(self._cluster.machines) + 1)
        if numbers:
            self._same = numbers[0]
        return replace(fault, brokers=numbers)

    def _number(self, number: int) -> int:
        if number == SAME:
            return self._same
        if number in (LEADER, FOLLOWER):
            number = self._invariants.leader_of_first() if number == LEADER else self._invariants.follower_of_first()
        return number if number in self._cluster.machines else 1

    def heal(self) -> None:
        """End everything that goes on."""
        self._is_over = True
        cluster = self._cluster
        cluster.network.heal()
        cluster.ensemble.heal()
        self._tree_up()
        for machine in cluster.machines.values():
            machine.set_clock(0.0)
            machine.disk.death = None
            if machine.host is not None and machine.host.is_stopped:
                machine.host.go_on()
            if not machine.is_up:
                machine.start()

    def _machine(self, number: int) -> Machine | None:
        """Return whom a fault means, if it is up and runs."""
        machine = self._cluster.machines[number]
        is_running = machine.is_up and machine.host and not machine.host.is_stopped
        return machine if is_running else None

    def _name(self, number: int) -> str:
        return self._cluster.machines[number].name

    def _later(self, delay_s: float, what: Callable[[], None]) -> None:
        self._world.loop.call_later(delay_s, lambda: None if self._is_over else what())

    def _kill(self, fault: Fault) -> None:
        machine = self._machine(fault.brokers[0])
        if machine is not None:
            self._world.tell(f"{machine.name} is killed")
            machine.kill()
            self._start_after(machine, fault.for_s[0])

    def _kill_some(self, fault: Fault) -> None:
        for number, for_s in zip(fault.brokers, fault.for_s, strict=True):
            self._kill(Fault(fault.at_s, "kill", (number,), (for_s,)))

    def _lose_power(self, fault: Fault) -> None:
        # Where all that are in sync lose their memory, nothing is promised of what is not on their disks.
        machines = [machine for number in fault.brokers if (machine := self._machine(number)) is not None]
        if not machines or not self._invariants.may_lose_power({machine.number for machine in machines}):
            return
        for machine, for_s in zip(machines, fault.for_s, strict=False):
            self._world.tell(f"{machine.name} loses its power")
            machine.lose_power()
            self._invariants.note_lost_power(machine.number)
            self._start_after(machine, for_s)

    def _restore(self, fault: Fault) -> None:
        """Kill brokers, and put older copies of their disks in their place; each partition keeps a member that has all
        that counts."""
        found = [machine for number in fault.brokers if (machine := self._machine(number)) and machine.old_copies()]
        if not found or not self._invariants.may_lose_disks({machine.number for machine in found}):
            return
        for machine, for_s in zip(found, fault.for_s, strict=False):
            copies = machine.old_copies()
            number = int(fault.share * len(copies))
            self._world.tell(f"the disk of {machine.name} is restored from copy {number + 1} of {len(copies)}")
            machine.kill()
            machine.restore_disk(copies[number])
            self._invariants.note_restored(machine.number)
            self._start_after(machine, for_s)

    def _die_at_file(self, fault: Fault) -> None:
        self._at_file(fault, is_power_lost=False)

    def _lose_power_at_file(self, fault: Fault) -> None:
        self._at_file(fault, is_power_lost=True)

    def _at_file(self, fault: Fault, *, is_power_lost: bool) -> None:
        """Have a broker die at one of its next operations on files, in this life or, where it starts, the next."""
        machine = self._cluster.machines[fault.brokers[0]]

        def die(operation: str) -> None:
            is_lost = is_power_lost and self._invariants.may_lose_power({machine.number})
            how = "before" if fault.share <= 0 else "after" if fault.share >= 1 else "within"
            end = "loses its power" if is_lost else "dies"
            self._world.tell(f"{machine.name} {end} {how} {operation}")
            if is_lost:
                machine.lose_power()
                self._invariants.note_lost_power(machine.number)
            else:
                machine.kill()
            self._start_after(machine, fault.for_s[0])

        machine.disk.death = Death(fault.operation, fault.share, die)

    def _start_after(self, machine: Machine, delay_s: float) -> None:
        self._later(delay_s, lambda: None if machine.is_up else machine.start())

    def _stop(self, fault: Fault) -> None:
        machine = self._machine(fault.brokers[0])
        if machine is None:
            return
        host = machine.host
        assert host
        self._world.tell(f"{machine.name} is stopped")
        self._invariants.note_late(machine.number)
        host.stop()

        def go_on() -> None:
            if host.is_stopped and host.is_alive:
                self._world.tell(f"{machine.name} goes on")
                self._invariants.note_late(machine.number)
                host.go_on()

        self._later(fault.for_s[0], go_on)

    def _cut(self, fault: Fault) -> None:
        one, other = map(self._name, fault.brokers)
        # Whether the way back is cut as well is as good as drawn with their order and the time.
        is_one_way = one < other
        links = {(one, other)} if is_one_way else {(one, other), (other, one)}
        self._cut_links(links, f"{one} is cut off from {other}" + (" in one direction" if is_one_way else ""), fault)

    def _isolate(self, fault: Fault) -> None:
        one = self._name(fault.brokers[0])
        others = [machine.name for machine in self._cluster.machines.values() if machine.name != one]
        links = {(one, each) for each in others} | {(each, one) for each in others}
        self._cut_links(links, f"{one} is cut off from all other brokers", fault)

    def _cut_from_tree(self, fault: Fault) -> None:
        name = self._name(fault.brokers[0])
        self._cut_links({(name, NAME), (NAME, name)}, f"{name} is cut off from ZooKeeper", fault)

    def _cut_links(self, links: set[tuple[str, str]], what: str, fault: Fault) -> None:
        self._world.tell(what)
        network = self._cluster.network
        network.cut |= links

        def heal() -> None:
            if links & network.cut:
                self._world.tell(f"no longer: {what}")
                network.mend(links)

        self._later(fault.for_s[0], heal)

    def _slow_down(self, fault: Fault) -> None:
        network = self._cluster.network
        network.slow = SLOW_SHARE
        self._world.tell("the network is slow")

        def fast() -> None:
            network.slow = 0.0

        self._later(fault.for_s[0], fast)

    def _slow_tree(self, fault: Fault) -> None:
        slow = self._cluster.ensemble.slow
        for name, for_s in zip(map(self._name, fault.brokers), fault.for_s, strict=True):
            slow.add(name)
            self._world.tell(f"ZooKeeper is slow for {name}")
            self._later(for_s, partial(slow.discard, name))

    def _lose_answers(self, fault: Fault) -> None:
        deaf = self._cluster.ensemble.deaf
        for name, for_s in zip(map(self._name, fault.brokers), fault.for_s, strict=True):
            deaf.add(name)
            self._world.tell(f"ZooKeeper's answers to {name} are lost")
            self._later(for_s, partial(deaf.discard, name))

    def _jump_clock(self, fault: Fault) -> None:
        machine = self._cluster.machines[fault.brokers[0]]
        self._world.tell(f"the clock of {machine.name} jumps by {fault.share * JUMP_S:.0f} s")
        machine.set_clock(fault.share * JUMP_S)
        self._later(fault.for_s[0], partial(machine.set_clock, 0.0))

    def _expire(self, fault: Fault) -> None:
        name = self._name(fault.brokers[0])
        ensemble = self._cluster.ensemble
        for session in list(ensemble.sessions.values()):
            if session.host_name == name:
                self._world.tell(f"the session of {name} is lost")
                self._invariants.note_late(fault.brokers[0])
                ensemble.expire(session)

    def _tree_down(self, fault: Fault) -> None:
        self._world.tell("ZooKeeper is down")
        self._cluster.ensemble.is_up = False
        self._later(fault.for_s[0], self._tree_up)

    def _tree_up(self) -> None:
        if not self._cluster.ensemble.is_up:
            self._world.tell("ZooKeeper is up")
            self._cluster.ensemble.come_back()
