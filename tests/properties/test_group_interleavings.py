"""Members that join, sync, leave, fall silent and come back in any order, with time passing in between.

Whatever they do, each waiter is answered exactly once, generations only grow, a generation has one leader, all
members of a stable group have an assignment that its leader gave, and in the end everybody is answered. What a member
was told of its assignment is stored, so that a coordinator that begins with what is stored agrees with it.
"""

from __future__ import annotations

from collections import deque
from itertools import count

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from barnabas.errors import ApiError, ErrorCode
from barnabas.groups import (
    GroupConfig,
    GroupCoordinator,
    GroupState,
    GroupWrite,
    JoinRequest,
    JoinResult,
    LeavingMember,
    StoredGroup,
    SyncRequest,
    SyncResult,
)
from barnabas.groups.requests import MEMBER_BYTES
from tests.support.searches import examples

GROUP = "g"
CLIENTS = st.integers(0, 4)
PROTOCOLS = st.sampled_from(
    [
        (("range", b"1"),),
        (("range", b"2"), ("sticky", b"2")),
        (("sticky", b"3"), ("range", b"3")),
        (("sticky", b"4"),),
    ]
)
GATHERED = (("range", b"5"), ("sticky", b"5"))


class Client:
    """What one client knows: its id, its generation, whether it leads, and which requests it waits for."""

    def __init__(self, index: int) -> None:
        self.instance = f"pod-{index}" if index >= 3 else None
        self.member_id = ""
        self.generation = -1
        self.member_ids: list[str] = []
        self.joins: set[int] = set()

    def forget(self) -> None:
        self.member_id, self.generation, self.member_ids = "", -1, []


class GroupMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.start(initial_rebalance_delay_ms=0)

    def start(self, **config: int) -> None:
        uuids, self.waiters = count(1), count(1)
        self.new_coordinator = lambda: GroupCoordinator(
            GroupConfig(members_max=4, new_member_join_timeout_ms=60_000, **config), lambda: str(next(uuids))
        )
        self.coordinator = self.new_coordinator()
        self.writes: deque[GroupWrite] = deque()
        self.log: StoredGroup | None = None
        self.clients = [Client(index) for index in range(5)]
        self.now = 0.0
        self.asked: dict[int, tuple[Client, int, str]] = {}
        self.answered: set[int] = set()
        self.highest_generation = 0
        self.leaders: dict[int, str] = {}
        self.given: dict[tuple[int, str], bytes] = {}

    @rule(
        client=CLIENTS,
        protocols=PROTOCOLS,
        rebalance_s=st.sampled_from([0, 5, 30]),
        session_s=st.sampled_from([6, 20]),
        require=st.booleans(),
        restarted=st.booleans(),
    )
    def join(self, client, protocols, rebalance_s, session_s, require, restarted):
        asking = self.clients[client]
        if restarted:
            asking.forget()
        request = JoinRequest(
            member_id=asking.member_id,
            group_instance_id=asking.instance,
            client_id=f"client{client}",
            protocols=protocols,
            protocol_type="consumer",
            session_timeout_ms=session_s * 1_000,
            rebalance_timeout_ms=rebalance_s * 1_000,
            require_member_id=require,
            supports_skip_assignment=require,
        )
        waiter = self.ask(asking)
        asking.joins.add(waiter)
        self.perform(self.coordinator.join(self.now, waiter, GROUP, request))

    @rule(clients=st.sets(CLIENTS, min_size=2, max_size=4))
    def gather(self, clients):
        """Let several join until they share a generation, which random steps seldom come to."""
        for _ in range(2):
            for client in sorted(clients):
                self.join(client, GATHERED, 30, 20, require=True, restarted=False)
                if self.clients[client].generation < 0:
                    self.join(client, GATHERED, 30, 20, require=True, restarted=False)
        while any(each.joins for each in self.clients) and self.coordinator.next_deadline() is not None:
            self.now = max(self.now, self.coordinator.next_deadline())
            self.perform(self.coordinator.tick(self.now, 1))

    @rule(client=CLIENTS, assigns_all=st.booleans())
    def sync(self, client, assigns_all):
        asking = self.clients[client]
        assignments = {}
        if asking.member_ids:
            named = asking.member_ids if assigns_all else asking.member_ids[:1]
            assignments = {each: f"{asking.generation}/{each}".encode() for each in named}
        request = SyncRequest(
            member_id=asking.member_id,
            generation=asking.generation,
            group_instance_id=asking.instance,
            assignments=assignments,
        )
        self.perform(self.coordinator.sync(self.now, self.ask(asking), GROUP, request))

    @rule(client=CLIENTS)
    def heartbeat(self, client):
        asking = self.clients[client]
        error = self.coordinator.heartbeat(self.now, GROUP, asking.member_id, asking.instance, asking.generation)
        self.learn(asking, error)

    @rule(client=CLIENTS)
    def commit(self, client):
        asking = self.clients[client]
        error = self.coordinator.check_commit(self.now, GROUP, asking.member_id, asking.instance, asking.generation)
        if error is ErrorCode.NONE and asking.generation >= 0:
            assert asking.generation == self.description().generation

    @rule(clients=st.lists(CLIENTS, min_size=1, max_size=3), by_instance=st.booleans())
    def leave(self, clients, by_instance):
        leaving = [
            LeavingMember("" if by_instance else self.clients[each].member_id, self.clients[each].instance)
            for each in clients
        ]
        result, effects = self.coordinator.leave(self.now, GROUP, leaving)
        assert len(result.members) == len(leaving)
        self.perform(effects)

    @rule(seconds=st.sampled_from([0.5, 3.0, 7.0, 25.0]), is_late=st.booleans())
    def pass_time(self, seconds, is_late):
        until = self.now + seconds
        while not is_late and (deadline := self.coordinator.next_deadline()) is not None and deadline <= until:
            self.now = max(self.now, deadline)
            self.perform(self.coordinator.tick(self.now, 1))
        self.now = until
        self.perform(self.coordinator.tick(until, 1))
        deadline = self.coordinator.next_deadline()
        assert deadline is None or deadline > until

    # -- what must hold ------------------------------------------------------------------------------------

    def ask(self, client: Client) -> int:
        waiter = next(self.waiters)
        self.asked[waiter] = (client, client.generation, client.member_id)
        return waiter

    def perform(self, effects):
        for waiter, result in effects.replies:
            assert waiter in self.asked, "a reply to one who did not ask, or was answered before"
            assert waiter not in self.answered
            client, generation, member_id = self.asked.pop(waiter)
            client.joins.discard(waiter)
            self.answered.add(waiter)
            if isinstance(result, JoinResult):
                self.check_join(client, result)
            else:
                self.check_sync(client, generation, member_id, result)
        self.writes += effects.appends
        self.store_what_is_quick()

    def store_what_is_quick(self) -> None:
        self.store(len(self.writes), succeeds=True)

    def store(self, count: int, *, succeeds: bool) -> None:
        for _ in range(min(count, len(self.writes))):
            write = self.writes.popleft()
            if succeeds:
                self.log = write.stored
                self.perform(self.coordinator.appended(self.now, write))
            else:
                error = ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
                self.perform(self.coordinator.failed(self.now, write, error))

    def check_join(self, client: Client, result: JoinResult) -> None:
        if result.error is ErrorCode.MEMBER_ID_REQUIRED:
            client.member_id = result.member_id
        if result.error is ErrorCode.NONE:
            client.member_id, client.generation = result.member_id, result.generation
            leads = result.leader == result.member_id
            client.member_ids = [each.member_id for each in result.members] if leads else []
            if leads:
                assert result.member_id in client.member_ids
            else:
                assert not result.members
            assert result.protocol_name in ("range", "sticky")
        self.learn(client, result.error)

    def check_sync(self, client: Client, generation: int, member_id: str, result: SyncResult) -> None:
        """The assignment is of the generation that was asked for; a restarted static member gets its old one."""
        if result.error is ErrorCode.NONE and client.instance is None:
            assert result.assignment in (b"", f"{generation}/{member_id}".encode())
            assert self.log is not None
            assert self.log.generation >= generation, "it was told what is not stored"
        elif result.error is ErrorCode.NONE:
            assert result.assignment == b"" or result.assignment.startswith(f"{generation}/pod-".encode())
        self.learn(client, result.error)

    def learn(self, client: Client, error: ErrorCode) -> None:
        if error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            client.forget()

    def description(self):
        return self.coordinator.describe(GROUP)

    @invariant()
    def generations_only_grow(self):
        description = self.description()
        if description is not None:
            assert description.generation >= self.highest_generation
            self.highest_generation = description.generation

    @invariant()
    def who_waits_is_a_member(self):
        group = self.coordinator._groups.get(GROUP)
        waiting = set()
        for member in group.members if group else ():
            waiting |= {member.join_waiter, member.sync_waiter} - {None}
        waiting |= {waiter for waiter, _ in group._unstored.values()} if group else set()
        assert waiting == set(self.asked), "a reply was lost, or somebody waits who was answered"

    @invariant()
    def memory_counts_what_members_hold(self):
        group = self.coordinator._groups.get(GROUP)
        held = 0
        if group is not None:
            held = sum(member.size_bytes for member in group.members)
            held += sum(MEMBER_BYTES + len(member_id) for member_id in group._pending)
        assert self.coordinator._memory.used_bytes == held

    @invariant()
    def states_agree_with_members(self):
        group = self.coordinator._groups.get(GROUP)
        if group is None:
            return
        state, members = group.state, group.members
        assert (members.leader_id in members) == bool(len(members))
        assert len(members) == 0 if state is GroupState.EMPTY else True
        if state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            assert len(members) > 0
            assert all(not member.is_awaiting_join for member in members)
            assert group.protocol_name in set.intersection(*(m.protocol_names for m in members))
        if state is not GroupState.COMPLETING_REBALANCE:
            assert all(member.sync_waiter is None for member in members)
        if group.next_deadline() == float("inf"):
            assert group.is_forgettable

    def teardown(self):
        """In silence everything ends: whoever still waits is answered, and all members expire."""
        self.store(len(self.writes), succeeds=True)
        for _ in range(200):
            deadline = self.coordinator.next_deadline()
            if deadline is None or not self.asked:
                break
            self.now = max(self.now, deadline)
            self.perform(self.coordinator.tick(self.now, 1))
        assert not self.asked
        self.perform(self.coordinator.tick(self.now + 1_000, 1))
        self.perform(self.coordinator.tick(self.now + 2_000, 1))
        description = self.description()
        assert description is None or not description.members


class StoringGroupMachine(GroupMachine):
    """The same with a disk that is slow or refuses, and coordinators that begin anew."""

    def store_what_is_quick(self) -> None:
        """Nothing is."""

    @rule(count=st.integers(1, 3), succeeds=st.booleans())
    def disk_answers(self, count, succeeds):
        self.store(count, succeeds=succeeds)

    @rule(stored=st.integers(0, 3))
    def restart(self, stored):
        """Some of what was written is in the log, though nobody was told so."""
        for write in list(self.writes)[:stored]:
            self.log = write.stored
        self.coordinator = self.new_coordinator()
        self.writes.clear()
        self.asked.clear()
        for client in self.clients:
            client.joins.clear()
        if self.log is not None:
            self.coordinator.load(self.now, GROUP, self.log)
        self.highest_generation = 0 if self.log is None else self.log.generation
        self.check_loaded()

    def check_loaded(self) -> None:
        found = self.description()
        if self.log is None:
            assert found is None
            return
        assert (found.generation, found.protocol_type) == (self.log.generation, self.log.protocol_type)
        group = self.coordinator._groups[GROUP]
        assert group.state is (GroupState.STABLE if self.log.members else GroupState.EMPTY)
        assert group.members.leader_id == self.log.leader_id
        assert tuple(member.stored(group.protocol_name) for member in group.members) == self.log.members


class DelayedGroupMachine(GroupMachine):
    """The same with an initial rebalance delay."""

    def __init__(self) -> None:
        super().__init__()
        self.start(initial_rebalance_delay_ms=3_000)


TestGroup = GroupMachine.TestCase
TestGroup.settings = settings(max_examples=examples(50), stateful_step_count=50)
TestDelayedGroup = DelayedGroupMachine.TestCase
TestDelayedGroup.settings = settings(max_examples=examples(40), stateful_step_count=40)
TestStoringGroup = StoringGroupMachine.TestCase
TestStoringGroup.settings = settings(max_examples=examples(60), stateful_step_count=50)
