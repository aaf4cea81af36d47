"""A consumer group whose members die, stop, leave and are cut off, and clients that commit at a fast pace.

Each record below a committed offset was given to a member; no two members of a generation have a partition; what was
acknowledged of commits is never gone back on; and in the end the group is stable and has read everything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, ClassVar

from barnabas.client.committed_offsets import committed_offsets
from barnabas.errors import ApiError, BarnabasError
from barnabas.model import TopicPartition
from barnabas.protocol.messages.describe_groups import DescribeGroupsRequest
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.simulation.clients import SimulatedClient
from tests.simulation.commits import CommitLedger, watched
from tests.simulation.members import GROUP, GroupLedger, SimulatedMember
from tests.simulation.workload import Workload

OFFSETS_TOPIC = "__consumer_offsets"
COMMIT_VERSION_MAX = 9
"""Later versions name topics by their ids."""
END_S = 120.0
LEAST_S = 0.05
"""Of a fault of a member."""


class Committer(SimulatedClient):
    """Commits for a group of its own without members, each time a later offset, and asks for it now and then.

    After each failure it asks: it may be another coordinator's by then, and the next commit would hide what was lost.
    """

    def __init__(self, groups: Groups, name: str, place: TopicPartition, pace_s: float) -> None:
        super().__init__(groups.cluster, name, (place.topic,), watched(groups.commits))
        self._place = place
        self._pace_s = pace_s
        self.is_done = False

    async def run(self) -> None:
        """Commit until told to stop."""
        offset = 0
        must_ask = False
        while not self.is_done:
            offset += 1
            try:
                if must_ask or offset % 5 == 0:
                    await committed_offsets(self.cluster, self.name, [self._place], timeout_s=4.0 * self.scale)
                    must_ask = False
                else:
                    await self._commit(offset)
            except BarnabasError:
                must_ask = True
                self.cluster.forget_coordinator(self.name)
                await self.again()
            await asyncio.sleep(self.world.random.uniform(0, 2 * self._pace_s))

    async def _commit(self, offset: int) -> None:
        part = OffsetCommitRequestPartition(
            partition_index=self._place.partition, committed_offset=offset, committed_metadata=None
        )
        topic = OffsetCommitRequestTopic(name=self._place.topic, partitions=[part])
        request = OffsetCommitRequest(group_id=self.name, topics=[topic])
        answer = await self.cluster.ask_coordinator(self.name, request, version_max=COMMIT_VERSION_MAX)
        if code := answer.topics[0].partitions[0].error_code:
            raise ApiError(code)


class Groups(Workload):
    """The members, what befalls them, and the committers."""

    settings: ClassVar[dict[str, Any]] = {
        "min_insync_replicas": 2,
        "group_initial_rebalance_delay_ms": 500,
        "group_min_session_timeout_ms": 100,
    }

    async def begin(self, topic: str, partitions: int) -> None:
        self._topic = topic
        self.ledger, self.commits = GroupLedger(self.say), CommitLedger(self.say)
        self.invariants.on_group_end.append(lambda group: self.ledger.forget() if group == GROUP else None)
        draw = self.world.random
        self._places = [TopicPartition(topic, number) for number in range(partitions)]
        self._settings = {
            "partition_assignment_strategy": draw.choice([("range",), ("cooperative-sticky",), ("roundrobin",)]),
            "enable_auto_commit": draw.random() < 0.3,
        }
        self._life_counters = 0
        self._is_healed = False
        self._members = [self._new_member(number) for number in range(draw.randint(2, 3))]
        pace_s = draw.choice([0.02, 0.1, 0.5])
        self._committers = [
            Committer(self, f"committer {number}", self._places[0], pace_s) for number in range(draw.randint(1, 2))
        ]
        for committer in self._committers:
            self.start(committer.host, committer.run())
        self.invariants.watch(TopicPartition(OFFSETS_TOPIC, number) for number in range(2))
        self._pace_s = draw.choice([2.0, 5.0, 20.0]) * self.world.scale
        self._trouble = self.world.loop.create_task(self._make_trouble())

    def heal(self) -> None:
        self._is_healed = True
        self._trouble.cancel()
        for committer in self._committers:
            committer.is_done = True
        for number, member in enumerate(self._members):
            if member.host.is_stopped:
                member.host.go_on()
            if not member.host.is_alive or member.is_done:
                self._members[number] = self._new_member(number)

    async def finish(self, at_end: Mapping[TopicPartition, list[int]]) -> bool:
        ends = {place: offsets[-1] + 1 for place, offsets in at_end.items() if offsets}
        asker = SimulatedClient(self.cluster, "group admin", (self._topic,), watched(self.commits))

        async def has_read_all() -> bool:
            found = await committed_offsets(asker.cluster, GROUP, list(self._places))
            self._last = {place: each.offset for place, each in found.items()}
            return all(self._last.get(place) == end for place, end in ends.items())

        async def is_stable() -> bool:
            answer = await asker.cluster.ask_coordinator(GROUP, DescribeGroupsRequest(groups=[GROUP]))
            group = answer.groups[0]
            if group.error_code:
                asker.cluster.forget_coordinator(GROUP)
                raise ApiError(group.error_code)
            self._last = group.group_state, len(group.members)
            return bool(self._last == ("Stable", len(self._members)))

        whole = await self.on(asker, self.until(has_read_all, END_S))
        if not whole:
            self.say(f"the group has committed {self._last}, and not {ends}")
        elif not (whole := await self.on(asker, self.until(is_stable, END_S))):
            self.say(f"the group is {self._last}, with {len(self._members)} members that live")
        for place, offsets in at_end.items():
            missed = sorted(set(offsets) - self.ledger.given[place])
            if missed:
                self.say(f"{place}: no member was given {len(missed)} records, among them {missed[:5]}")
        for member in self._members:
            member.is_done = True
        for committer in self._committers:
            await self.on(asker, self.until(lambda who=committer: self._ask(asker, who.name), END_S))
        await self.end_tasks()
        return bool(whole)

    async def _ask(self, asker: SimulatedClient, group: str) -> bool:
        """Ask a group where it is; what comes back is checked on the way."""
        await committed_offsets(asker.cluster, group, [self._places[0]])
        return True

    def _new_member(self, number: int) -> SimulatedMember:
        self._life_counters += 1
        name = f"member {number}, life {self._life_counters}"
        member = SimulatedMember(
            self.cluster, name, self._topic, self.history, self.ledger, self.commits, self._settings
        )
        self.start(member.host, member.run())
        return member

    async def _make_trouble(self) -> None:
        draw = self.world.random
        faults = draw.sample([self._kill, self._stop, self._leave, self._cut], draw.randint(1, 3))
        while True:
            await asyncio.sleep(draw.uniform(0, 2 * self._pace_s))
            number = draw.randrange(len(self._members))
            member = self._members[number]
            if member.host.is_alive and not member.host.is_stopped and not member.is_done:
                draw.choice(faults)(number, member)

    def _kill(self, number: int, member: SimulatedMember) -> None:
        self.world.tell(f"{member.name} is killed")
        member.host.kill()
        self._come_back_later(number)

    def _leave(self, number: int, member: SimulatedMember) -> None:
        self.world.tell(f"{member.name} leaves")
        member.is_done = True
        self._come_back_later(number)

    def _come_back_later(self, number: int) -> None:
        def come_back() -> None:
            if not self._is_healed:
                self._members[number] = self._new_member(number)

        self.world.loop.call_later(self._drawn_s(10.0), come_back)

    def _stop(self, _: int, member: SimulatedMember) -> None:
        self.world.tell(f"{member.name} is stopped")
        member.host.stop()

        def go_on() -> None:
            if member.host.is_stopped and member.host.is_alive:
                self.world.tell(f"{member.name} goes on")
                member.host.go_on()

        self.world.loop.call_later(self._drawn_s(20.0), go_on)

    def _cut(self, _: int, member: SimulatedMember) -> None:
        broker = self.world.random.choice(list(self.cluster.machines.values())).name
        links = {(member.name, broker), (broker, member.name)}
        self.world.tell(f"{member.name} is cut off from {broker}")
        self.cluster.network.cut |= links
        self.world.loop.call_later(self._drawn_s(10.0), self.cluster.network.mend, links)

    def _drawn_s(self, most_s: float) -> float:
        return self.world.random.uniform(LEAST_S, most_s * self.world.scale)
