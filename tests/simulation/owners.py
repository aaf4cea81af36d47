"""Consumers that share a group's partitions out among themselves in the tree, while they die, stop, leave and are cut
off from it, so that sessions expire.

Nobody is handed a record of a partition that another owns at that moment; offsets are committed by owners alone, and
never go back; and in the end every partition has an owner that lives, and everything was read and committed.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from barnabas.client.consumer.zookeeper_assignment import ZooKeeperAssignment
from barnabas.client.consumer.zookeeper_group_session import SerialThread, ZooKeeperGroupSession
from barnabas.coordination import paths
from barnabas.coordination.values import decode_offset
from barnabas.laboratory.history import History
from barnabas.model import TopicPartition
from tests.simulation.cluster import SimulatedCluster, SimulatedThreads
from tests.simulation.commits import CommitLedger
from tests.simulation.ensemble import NAME, SimulatedSession
from tests.simulation.members import GROUP, POLL_RECORDS, POLL_S, GroupLedger, SimulatedMember
from tests.simulation.workload import Workload
from tests.simulation.world import Host

END_S = 120.0
LOOK_S = 0.5


class SimulatedThread(SerialThread):
    """A thread of a host that asks the tree, which takes turns with the loop."""

    def __init__(self, threads: SimulatedThreads) -> None:
        self._threads = threads

    def submit(self, call: Callable[[], Any]) -> Any:
        """Have something asked; the future is the loop's."""
        return self._threads.in_metadata_thread(call)

    def stop(self) -> None:
        """It ends with the run."""


class SimulatedCoordination(ZooKeeperGroupSession):
    """That of production, whose threads take turns with the loop; so what the tree says comes on the loop already."""

    host: Host

    def _soon(self, call: Callable[[], None]) -> None:
        self.host.soon(call)


class SimulatedOwner(SimulatedMember):
    """One life of one consumer.

    :param owner_of: says who owns a partition now, if anybody does.
    """

    def __init__(
        self,
        cluster: SimulatedCluster,
        name: str,
        topic: str,
        history: History,
        say: Callable[[str], None],
        owner_of: Callable[[TopicPartition], str | None],
        given: dict[TopicPartition, set[int]],
        settings: dict[str, Any],
    ) -> None:
        settings = {"coordination": f"zookeeper://{NAME}", **settings}
        super().__init__(cluster, name, topic, history, GroupLedger(say), CommitLedger(say), settings)
        self._say = say
        self._owner_of = owner_of
        self._given = given
        assignment = self._core.state.membership
        assert isinstance(assignment, ZooKeeperAssignment)
        assignment.consumer_id = name
        coordination = SimulatedCoordination(
            self._core.state,
            self._background._cluster,
            assignment,
            lambda: cluster.ensemble.connect(self.host),
            lambda _: SimulatedThread(SimulatedThreads(self.host, cluster.ensemble)),
        )
        coordination.host = self.host
        self._background._session = coordination

    async def _poll(self) -> bool:
        started = self._history.now()
        records = await self._driver.run(self._core.poll(POLL_RECORDS, POLL_S))
        for place in {TopicPartition(record.topic, record.partition) for record in records}:
            owner = self._owner_of(place)
            if owner not in (None, self.name):
                self._say(f"{self.name} was handed records of {place}, which {owner} owns")
        for record in records:
            self._given[TopicPartition(record.topic, record.partition)].add(record.offset)
        if records:
            given = [(TopicPartition(each.topic, each.partition), each.offset, each.value or b"") for each in records]
            self._history.poll(self.name, started, given)
        return bool(records)


class Owners(Workload):
    """The consumers, and what befalls them."""

    settings: ClassVar[dict[str, Any]] = {"min_insync_replicas": 2}

    async def begin(self, topic: str, partitions: int) -> None:
        self._topic = topic
        self._places = [TopicPartition(topic, number) for number in range(partitions)]
        self._offsets = {paths.group_offset(GROUP, place): place for place in self._places}
        self._given: dict[TopicPartition, set[int]] = defaultdict(set)
        draw = self.world.random
        self._settings = {"enable_auto_commit": draw.random() < 0.3}
        self._life_counters = 0
        self._is_healed = False
        self.cluster.ensemble.on_set.append(self._on_set)
        self._members = [self._new_member(f"owner {number}") for number in range(draw.randint(2, 3))]
        self._guests: list[SimulatedOwner] = []
        self._pace_s = draw.choice([0.5, 2.0, 5.0])
        self._trouble = self.world.loop.create_task(self._make_trouble())

    def heal(self) -> None:
        self._is_healed = True
        self._trouble.cancel()
        for guest in self._guests:
            guest.is_done = True
        for number, member in enumerate(self._members):
            if member.host.is_stopped:
                member.host.go_on()
            if not member.host.is_alive or member.is_done:
                self._members[number] = self._new_member(f"owner {number}")

    async def finish(self, at_end: Mapping[TopicPartition, list[int]]) -> bool:
        ends = {place: offsets[-1] + 1 for place, offsets in at_end.items() if offsets}
        whole = await self._comes_to(lambda: all(self._committed(place) == end for place, end in ends.items()))
        if not whole:
            self.say(f"committed are {[self._committed(place) for place in ends]}, and not {list(ends.values())}")
        elif not (whole := await self._comes_to(lambda: self._living() >= set(map(self._owner_of, self._places)))):
            self.say(f"the owners are {[self._owner_of(place) for place in self._places]}, of {self._living()}")
        for place, offsets in at_end.items():
            missed = sorted(set(offsets) - self._given[place])
            if missed:
                self.say(f"{place}: nobody was handed {len(missed)} records, among them {missed[:5]}")
        for member in self._members:
            member.is_done = True
        await self.end_tasks()
        return whole

    async def _comes_to(self, holds: Callable[[], bool]) -> bool:
        end_s = self.world.loop.time() + END_S
        while not holds() and self.world.loop.time() < end_s:  # noqa: ASYNC110 - looked at from outside
            await asyncio.sleep(LOOK_S)
        return holds()

    # --- looked at from outside -------------------------------------------------------------------------

    def _living(self) -> set[str | None]:
        return {member.name for member in self._members}

    def _owner_of(self, place: TopicPartition) -> str | None:
        node = self.cluster.ensemble.nodes.get(paths.group_owner(GROUP, place))
        return None if node is None else node.data.decode()

    def _committed(self, place: TopicPartition) -> int:
        path = paths.group_offset(GROUP, place)
        node = self.cluster.ensemble.nodes.get(path)
        return -1 if node is None else decode_offset(path, node.data).offset.offset

    def _on_set(self, session: SimulatedSession, path: str, before: bytes, after: bytes) -> None:
        place = self._offsets.get(path)
        if place is None:
            return
        was, now = (decode_offset(path, each).offset.offset for each in (before, after))
        if now < was:
            self.say(f"{place}: {session.host_name} has committed {now} after {was}")
        owner = self.cluster.ensemble.nodes.get(paths.group_owner(GROUP, place))
        if owner is None or owner.stat.owner != session.session_id:
            self.say(f"{place}: {session.host_name} has committed, and does not own it")

    # --- what befalls them ------------------------------------------------------------------------------

    def _new_member(self, who: str) -> SimulatedOwner:
        self._life_counters += 1
        name = f"{who}, life {self._life_counters}"
        member = SimulatedOwner(
            self.cluster, name, self._topic, self.history, self.say, self._owner_of, self._given, self._settings
        )
        self.start(member.host, member.run())
        return member

    async def _make_trouble(self) -> None:
        draw = self.world.random
        while True:
            await asyncio.sleep(draw.uniform(0, 2 * self._pace_s))
            number = draw.randrange(len(self._members))
            member = self._members[number]
            if member.host.is_alive and not member.host.is_stopped and not member.is_done:
                faults = [self._kill, self._stop, self._leave, self._cut, self._visit]
                draw.choices(faults, [1, 1, 1, 1, 4])[0](number, member)

    def _kill(self, number: int, member: SimulatedOwner) -> None:
        self.world.tell(f"{member.name} is killed")
        member.host.kill()
        self._come_back_later(number)

    def _leave(self, number: int, member: SimulatedOwner) -> None:
        self.world.tell(f"{member.name} leaves")
        member.is_done = True
        self._come_back_later(number)

    def _come_back_later(self, number: int) -> None:
        def come_back() -> None:
            if not self._is_healed:
                self._members[number] = self._new_member(f"owner {number}")

        self.world.loop.call_later(self.world.random.uniform(0.05, 10.0), come_back)

    def _stop(self, _: int, member: SimulatedOwner) -> None:
        self.world.tell(f"{member.name} is stopped")
        member.host.stop()

        def go_on() -> None:
            if member.host.is_stopped and member.host.is_alive:
                self.world.tell(f"{member.name} goes on")
                member.host.go_on()

        self.world.loop.call_later(self._long_or_short_s(), go_on)

    def _cut(self, _: int, member: SimulatedOwner) -> None:
        self._cut_for(member, self._long_or_short_s())

    def _cut_for(self, member: SimulatedOwner, for_s: float) -> None:
        links = {(member.name, NAME), (NAME, member.name)}
        self.world.tell(f"{member.name} is cut off from the tree")
        self.cluster.network.cut |= links
        self.world.loop.call_later(for_s, self.cluster.network.mend, links)

    def _visit(self, _: int, member: SimulatedOwner) -> None:
        """Let another one come, whose name is the first, so that the first partition is to be its own, and leave; who
        owns that, or else this one, does not hear of it for a while in which its session lives."""
        owner = self._owner_of(self._places[0])
        unheard = next((each for each in self._members if each.name == owner), member)
        within_a_session_s = self.world.random.uniform(0.2, 0.6) * self.cluster.ensemble.session_timeout_s
        self._cut_for(unheard, within_a_session_s)
        guest = self._new_member("guest")
        self.world.tell(f"{guest.name} comes")
        self._guests.append(guest)

        def leave() -> None:
            guest.is_done = True

        self.world.loop.call_later(self._long_or_short_s(), leave)

    def _long_or_short_s(self) -> float:
        """Draw how long: shorter than a session, or longer."""
        return self.world.random.uniform(0.05, 3 * self.cluster.ensemble.session_timeout_s)
