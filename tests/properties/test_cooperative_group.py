"""Our members and our coordinator, wired to each other without sockets: in no order of events do two members read
one partition, and in the end every partition is read, evenly.

Members with cooperative strategies share a group with members that still allow for an eager one, come and go, sleep
until the group has gone on without them, and are crashed.
"""

from __future__ import annotations

from itertools import count

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from barnabas.client.consumer.classic_membership import ClassicMembership, JoinOutcome
from barnabas.errors import ErrorCode
from barnabas.groups import GroupConfig, GroupCoordinator, JoinRequest, JoinResult, LeavingMember, SyncRequest
from barnabas.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from barnabas.protocol.messages.sync_group import SyncGroupResponse
from tests.support.searches import examples

GROUP = "g"
COUNTS = {"t": 5, "u": 2}
TOPICS = [["t"], ["t", "u"]]
STRATEGIES = [["cooperative-sticky"], ["cooperative-sticky", "range"]]
SESSION_MS = 10_000


class Player:
    """A consumer: the membership, and in place of its shell the few steps in which it drives it."""

    def __init__(self, machine, strategies, topics):
        self.machine = machine
        self.topics = topics
        self.reads = set()
        self.assigned = None
        self.is_waiting = False
        self.membership = ClassicMembership(
            GROUP,
            instance_id=None,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=SESSION_MS,
            strategies=strategies,
        )

    def poll(self):
        """What the polling thread does: give up, lose, take, and join where needed."""
        if self.assigned is not None:
            if self.reads - set(self.assigned):
                self.membership.rejoin("gave some up")
            self.reads, self.assigned = set(self.assigned), None
        if self.membership.rejoin_needed and not self.is_waiting:
            if self.membership.lost:
                self.reads = set()
                self.membership.on_lost_given_up()
            elif not self.membership.is_cooperative:
                self.reads = set()
            else:
                self.reads = {tp for tp in self.reads if tp.topic in self.topics}
            self.is_waiting = True
            self.join()

    def join(self):
        owned = sorted(self.reads) if self.membership.is_cooperative else []
        request = self.membership.join_request(self.topics, owned)
        self.machine.join(self, request)

    def again(self):
        if self.membership.lost and self.reads:
            self.is_waiting = False
            self.membership.on_join_failed()
        else:
            self.join()

    def on_join(self, result: JoinResult):
        members = [JoinGroupResponseMember(member_id=each.member_id, metadata=each.metadata) for each in result.members]
        response = JoinGroupResponse(
            error_code=result.error,
            generation_id=result.generation,
            protocol_name=result.protocol_name,
            leader=result.leader,
            member_id=result.member_id,
            members=members,
        )
        joined = self.membership.on_join(response)
        if joined is JoinOutcome.AGAIN:
            self.again()
        else:
            counts = COUNTS if joined is JoinOutcome.AS_LEADER else None
            self.machine.sync(self, self.membership.sync_request(counts))

    def on_sync(self, result):
        response = SyncGroupResponse(error_code=result.error, assignment=result.assignment)
        self.assigned = self.membership.on_sync(response)
        if self.assigned is None:
            self.again()
        else:
            self.is_waiting = False


class CooperativeGroup(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        uuids = count()
        config = GroupConfig(initial_rebalance_delay_ms=0)
        self.coordinator = GroupCoordinator(config, new_uuid=lambda: str(next(uuids)))
        self.now = 0.0
        self.players = []
        self.asked = {}
        self.waiters = count()

    # -- the network: answers arrive at once ---------------------------------------------------------------

    def join(self, player, request):
        waiter = next(self.waiters)
        self.asked[waiter] = player
        protocols = tuple((each.name, each.metadata) for each in request.protocols)
        ours = JoinRequest(
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            protocol_type=request.protocol_type,
            protocols=protocols,
            member_id=request.member_id,
            require_member_id=True,
        )
        self.perform(self.coordinator.join(self.now, waiter, GROUP, ours))

    def sync(self, player, request):
        waiter = next(self.waiters)
        self.asked[waiter] = player
        ours = SyncRequest(
            member_id=request.member_id,
            generation=request.generation_id,
            assignments={each.member_id: each.assignment for each in request.assignments},
        )
        self.perform(self.coordinator.sync(self.now, waiter, GROUP, ours))

    def perform(self, effects):
        for waiter, result in effects.replies:
            player = self.asked.pop(waiter)
            if player not in self.players:
                continue
            if isinstance(result, JoinResult):
                player.on_join(result)
            else:
                player.on_sync(result)
        for write in effects.appends:
            self.perform(self.coordinator.appended(self.now, write))

    def heartbeat_of(self, player):
        membership = player.membership
        if membership.is_member:
            generation = membership.generation
            code = self.coordinator.heartbeat(self.now, GROUP, membership.member_id, None, generation)
            membership.on_heartbeat(code, generation)

    # -- what may happen -----------------------------------------------------------------------------------

    @precondition(lambda self: len(self.players) < 4)
    @rule(strategies=st.sampled_from(STRATEGIES), topics=st.sampled_from(TOPICS))
    def start(self, strategies, topics):
        self.players.append(Player(self, strategies, topics))

    @precondition(lambda self: self.players)
    @rule(number=st.integers(0, 3))
    def poll(self, number):
        self.players[number % len(self.players)].poll()

    @precondition(lambda self: self.players)
    @rule(number=st.integers(0, 3))
    def heartbeat(self, number):
        self.heartbeat_of(self.players[number % len(self.players)])

    @precondition(lambda self: self.players)
    @rule(number=st.integers(0, 3), topics=st.sampled_from(TOPICS))
    def subscribe(self, number, topics):
        player = self.players[number % len(self.players)]
        player.topics = topics
        player.membership.rejoin("the subscription has changed")

    @precondition(lambda self: self.players)
    @rule(number=st.integers(0, 3))
    def commit(self, number):
        player = self.players[number % len(self.players)]
        generation = player.membership.generation
        if generation >= 0:
            code = self.coordinator.check_commit(self.now, GROUP, player.membership.member_id, None, generation)
            if code is not ErrorCode.NONE:
                player.membership.on_commit_refused(code, generation)

    @precondition(lambda self: self.players)
    @rule(number=st.integers(0, 3))
    def crash(self, number):
        self.players.pop(number % len(self.players))

    @precondition(lambda self: self.players)
    @rule(number=st.integers(0, 3))
    def leave(self, number):
        player = self.players.pop(number % len(self.players))
        request = player.membership.leave_request()
        if request is not None:
            _, effects = self.coordinator.leave(self.now, GROUP, [LeavingMember(request.member_id)])
            self.perform(effects)

    @rule(seconds=st.sampled_from([1.0, 4.0, 11.0]))
    def pass_time(self, seconds):
        until = self.now + seconds
        while (deadline := self.coordinator.next_deadline()) is not None and deadline <= until:
            self.now = max(self.now, deadline)
            self.perform(self.coordinator.tick(self.now, 1))
        self.now = until

    # -- what must hold ------------------------------------------------------------------------------------

    def known(self):
        description = self.coordinator.describe(GROUP)
        return {each.member_id for each in description.members} if description else set()

    def members(self):
        """Those whom the group knows; the others sleep, and will hear that they are out."""
        known = self.known()
        return [player for player in self.players if player.membership.member_id in known]

    def rests(self):
        """Whether nobody has anything to do, and the crashed ones are forgotten."""
        is_still = all(not each.membership.rejoin_needed and each.assigned is None for each in self.players)
        return is_still and self.known() == {each.membership.member_id for each in self.players}

    @invariant()
    def no_partition_is_read_by_two(self):
        read = [tp for player in self.members() for tp in player.reads]
        assert len(read) == len(set(read))

    def teardown(self):
        """When nothing happens any more, the group comes to rest, and all partitions are read."""
        for _ in range(60):
            self.pass_time(1.0)
            for player in self.players:
                self.heartbeat_of(player)
                player.poll()
            if self.rests():
                break
        else:
            raise AssertionError("the group does not come to rest")
        wanted = {topic for player in self.players for topic in player.topics}
        read = {tp for player in self.players for tp in player.reads}
        assert len(read) == sum(COUNTS[topic] for topic in wanted)
        if len({tuple(player.topics) for player in self.players}) == 1:
            sizes = [len(player.reads) for player in self.players]
            assert max(sizes) - min(sizes) <= 1


TestCooperativeGroup = CooperativeGroup.TestCase
TestCooperativeGroup.settings = settings(max_examples=examples(40), stateful_step_count=40)
