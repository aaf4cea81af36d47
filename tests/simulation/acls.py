"""Clients whose permissions are granted and revoked again and again, while faults go on.

The brokers have ACLs, and know clients by their certificates (`Host.identity`). A guest uses connections to all brokers
that it keeps open, and new ones: it produces, fetches with a fetch session, commits offsets, and asks for metadata. An
administrator grants and revokes the guests' permissions, with literal names, prefixes and wildcards, and with ACLs that
deny. `AccessCheck` finds a broker that serves a guest after a revocation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar

from barnabas.broker.settings.static import AUTHORIZERS, RACK_AWARE_SELECTORS
from barnabas.errors import ApiError, BarnabasError, ErrorCode
from barnabas.model import Acks, TopicPartition
from barnabas.net.client_connection import ClientConnection
from barnabas.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from barnabas.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.records import BatchBuilder
from barnabas.security.acls import Operation, PatternType, Permission, ResourceType
from barnabas.security.principal import Principal
from tests.simulation.access_check import (
    FETCH,
    IN_FORCE_S,
    LOOK_S,
    METADATA,
    OFFSET_COMMIT,
    PRODUCE,
    AccessCheck,
    Need,
    on_response,
    watching_responses,
)
from tests.simulation.clients import FETCH_BYTES, VERSION_MAX, SimulatedClient
from tests.simulation.cluster import PORT
from tests.simulation.workload import REPLICAS, SAFE, Workload
from tests.simulation.world import INSIDER, Host, HostClock

TOPIC = "guarded"
GROUP = "guests"
GUESTS = ("alice", "bob")
PLACE = TopicPartition(TOPIC, 0)
REQUEST_S = 5.0
FETCH_WAIT_MS = 400
PAUSE_S = 0.1
NEW_CONNECTION = 0.1
"""The probability that a guest opens a new connection for a request."""
GRANTED_S, REVOKED_S = (0.3, 1.5), (IN_FORCE_S, IN_FORCE_S + 2.5)
"""The duration of a grant, and of a revocation. A shorter revocation could not be checked."""
END_S = 30.0


def principal(name: str) -> Principal:
    return Principal("User", f"CN={name}")


def _needs() -> dict[int, Sequence[Need]]:
    guests = [principal(each) for each in GUESTS]
    topic, group = ResourceType.TOPIC, ResourceType.GROUP
    return {
        PRODUCE: [Need(each, Operation.WRITE, topic, TOPIC) for each in guests],
        FETCH: [Need(each, Operation.READ, topic, TOPIC) for each in guests],
        METADATA: [Need(each, Operation.DESCRIBE, topic, TOPIC) for each in guests],
        OFFSET_COMMIT: [
            need
            for each in guests
            for need in (Need(each, Operation.READ, topic, TOPIC), Need(each, Operation.READ, group, GROUP))
        ],
    }


class Guest:
    """A client with its own principal, which keeps a connection to each broker."""

    def __init__(self, workload: Acls, name: str) -> None:
        self.world = workload.world
        self.name = name
        self.host = Host(self.world, name, HostClock(self.world.loop, rate=1.0, ahead_ms=0), identity=name)
        self.is_done = False
        self.refused = 0
        """The number of requests with an error of authorization."""
        self._workload = workload
        self._draw = self.world.random
        builder = BatchBuilder()
        builder.append(self.host.clock.time_ms(), None, name.encode())
        self._batch = bytes(builder.build(-1, -1, -1))
        self._offset = 0

    async def use(self) -> None:
        """Send requests of all kinds to all brokers until the stop."""
        connections: dict[int, ClientConnection] = {}
        sends = (self._produce, self._metadata, self._commit)
        while not self.is_done:
            await self._try(connections, self._draw.choice(sends))
            await asyncio.sleep(self._draw.uniform(0, PAUSE_S))

    async def fetch(self) -> None:
        """Fetch with a fetch session for each connection until the stop."""
        connections: dict[int, ClientConnection] = {}
        self._sessions: dict[ClientConnection, tuple[int, int]] = {}
        while not self.is_done:
            await self._try(connections, self._fetch)
            await asyncio.sleep(self._draw.uniform(0, PAUSE_S))

    async def _try(self, connections: dict[int, ClientConnection], send: Any) -> None:
        number = self._workload.likely_broker()
        try:
            if self._draw.random() < NEW_CONNECTION and number in connections:
                connections.pop(number).close()
            if number not in connections:
                machine = self._workload.cluster.machines[number]
                connections[number] = await self._workload.cluster.network.dial(machine.name, PORT)
            if await send(connections[number]):
                self.refused += 1
        except BarnabasError:
            if number in connections:
                connections.pop(number).close()

    async def _produce(self, connection: ClientConnection) -> bool:
        data = PartitionProduceData(index=PLACE.partition, records=self._batch)
        topic = TopicProduceData(name=TOPIC, partition_data=[data])
        request = ProduceRequest(acks=Acks.LEADER, timeout_ms=1_000, topic_data=[topic])
        response = await self._ask(connection, request)
        return _is_refused(response.responses[0].partition_responses[0].error_code)

    async def _metadata(self, connection: ClientConnection) -> bool:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)], allow_auto_topic_creation=False)
        response = await self._ask(connection, request)
        return _is_refused(response.topics[0].error_code)

    async def _commit(self, connection: ClientConnection) -> bool:
        self._offset += 1
        part = OffsetCommitRequestPartition(
            partition_index=PLACE.partition, committed_offset=self._offset, committed_metadata=None
        )
        request = OffsetCommitRequest(group_id=GROUP, topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=[part])])
        response = await self._ask(connection, request, 9)
        return _is_refused(response.topics[0].partitions[0].error_code)

    async def _fetch(self, connection: ClientConnection) -> bool:
        session_id, epoch = self._sessions.get(connection, (0, 0))
        part = FetchPartition(
            partition=PLACE.partition, fetch_offset=self._workload.end_offset(), partition_max_bytes=FETCH_BYTES
        )
        request = FetchRequest(
            max_wait_ms=FETCH_WAIT_MS,
            min_bytes=1,
            session_id=session_id,
            session_epoch=epoch,
            rack_id=self._draw.choice(["", "rack-1", "rack-2"]),
            topics=[FetchTopic(topic=TOPIC, partitions=[part])],
        )
        response = await self._ask(connection, request)
        if response.error_code or not response.session_id:
            self._sessions.pop(connection, None)
        else:
            self._sessions[connection] = response.session_id, epoch + 1
        return any(_is_refused(each.error_code) for topic in response.responses for each in topic.partitions)

    async def _ask(self, connection: ClientConnection, request: object, version_max: int = VERSION_MAX) -> Any:
        version = min(connection.version_for(type(request)), version_max)
        return await connection.send(request, version=version, timeout_s=REQUEST_S)


def _is_refused(code: int) -> bool:
    return code in (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED)


class Acls(Workload):
    """The administrator and the guests."""

    settings: ClassVar[dict[str, Any]] = {
        "authorizer_class_name": AUTHORIZERS[0],
        "super_users": f"User:CN={INSIDER}",
        "replica_selector_class": min(RACK_AWARE_SELECTORS),
    }

    @classmethod
    def watching(cls) -> AbstractContextManager[None]:
        return watching_responses()

    async def begin(self, topic: str, partitions: int) -> None:
        self._is_over = False
        self._admin = SimulatedClient(self.cluster, "administrator", (TOPIC,))
        await self.on(self._admin, self._admin.create_topic(TOPIC, 1, REPLICAS, dict(SAFE)))
        self._check = AccessCheck(self.cluster, _needs(), self.say)
        self._check.look()
        on_response(self._check.note)
        observer = Host(self.world, "observer", HostClock(self.world.loop, rate=1.0, ahead_ms=0))
        self.start(observer, self._observe())
        self._guests = [Guest(self, name) for name in GUESTS]
        for guest in self._guests:
            self.start(guest.host, guest.use())
            self.start(guest.host, guest.fetch())
        self._changes = [self.start(self._admin.host, self._change(guest)) for guest in GUESTS]

    async def _observe(self) -> None:
        while not self._is_over:
            self._check.look()
            await asyncio.sleep(LOOK_S)

    def likely_broker(self) -> int:
        """Return a broker: the leader of the topic, or any."""
        draw = self.world.random
        state = self.invariants.state_of(PLACE)
        if state is not None and state.leader in self.cluster.machines and draw.random() < 0.5:
            return state.leader
        return draw.choice(list(self.cluster.machines))

    def end_offset(self) -> int:
        """Return the log end offset of the leader, so that a fetch waits; 0 if there is no leader."""
        state = self.invariants.state_of(PLACE)
        machine = None if state is None else self.cluster.machines.get(state.leader)
        broker = None if machine is None else machine.broker
        topics = getattr(broker, "topics", None)  # a broker that starts has none yet
        replica = None if topics is None else topics.replicas.get(PLACE)
        return 0 if replica is None else replica.log.log_end_offset

    # --- the administrator ------------------------------------------------------------------------------

    async def _change(self, guest: str) -> None:
        draw = self.world.random
        while not self._is_over:
            revokes = await self._grant(guest)
            await asyncio.sleep(draw.uniform(*GRANTED_S))
            for request in revokes:
                await self._until_done(request)
            self.world.tell(f"the permissions of {guest} are revoked")
            await asyncio.sleep(draw.uniform(*REVOKED_S))

    async def _grant(self, guest: str) -> list[object]:
        """Grant permissions; return the requests that revoke them."""
        name = str(principal(guest))
        literal, prefixed = PatternType.LITERAL, PatternType.PREFIXED
        pattern, topic = self.world.random.choice([(literal, TOPIC), (prefixed, TOPIC[:3]), (literal, "*")])
        await self._until_done(DeleteAclsRequest(filters=[all_of(name)]))
        creations = [
            allow(name, operation, kind, resource, pattern_type)
            for operation, kind, resource, pattern_type in (
                (Operation.WRITE, ResourceType.TOPIC, topic, pattern),
                (Operation.READ, ResourceType.TOPIC, topic, pattern),
                (Operation.READ, ResourceType.GROUP, GROUP, literal),
            )
        ]
        await self._until_done(CreateAclsRequest(creations=creations))
        self.world.tell(f"the permissions of {guest} are granted")
        if self.world.random.random() < 0.5:
            return [DeleteAclsRequest(filters=[all_of(name)])]
        deny = [
            allow(name, Operation.ALL, kind, resource, literal, Permission.DENY)
            for kind, resource in ((ResourceType.TOPIC, TOPIC), (ResourceType.GROUP, "*"))
        ]
        return [CreateAclsRequest(creations=deny)]

    async def _until_done(self, request: object) -> None:
        """Send a request to any broker, until a broker has done it."""
        while not self._is_over:
            try:
                channel = await self._admin.cluster.any_channel()
                response = await self._admin.cluster.ask(channel, request)
                results = response.results if isinstance(request, CreateAclsRequest) else response.filter_results
                for each in results:
                    if each.error_code:
                        raise ApiError(each.error_code, each.error_message or "")
            except BarnabasError:
                await self._admin.again()
            else:
                return

    # --- the end ----------------------------------------------------------------------------------------

    def heal(self) -> None:
        for task in self._changes:
            task.cancel()

    async def finish(self, at_end: Mapping[TopicPartition, list[int]]) -> bool:
        """Check that grants and revocations still work at the end."""
        guest = self._guests[0]
        await self.on(self._admin, self._grant(guest.name))
        served = self._check.served

        async def is_served() -> bool:
            return self._check.served > served + 3

        whole = await self.until(is_served, END_S)
        await self.on(self._admin, self._until_done(DeleteAclsRequest(filters=[all_of(str(principal(guest.name)))])))
        refused = guest.refused

        async def is_refused() -> bool:
            return guest.refused > refused + 3

        whole = await self.until(is_refused, END_S) and whole
        await asyncio.sleep(IN_FORCE_S + PAUSE_S)
        self._is_over = True
        for each in self._guests:
            each.is_done = True
        await self.end_tasks()
        refusals = sum(each.refused for each in self._guests)
        self.world.tell(f"the guests were served {self._check.served} times, and refused {refusals} times")
        return whole


def allow(
    name: str,
    operation: Operation,
    kind: ResourceType,
    resource: str,
    pattern_type: PatternType,
    permission: Permission = Permission.ALLOW,
) -> AclCreation:
    return AclCreation(
        resource_type=kind,
        resource_name=resource,
        resource_pattern_type=pattern_type,
        principal=name,
        host="*",
        operation=operation,
        permission_type=permission,
    )


def all_of(name: str) -> DeleteAclsFilter:
    """Return the filter for all ACLs of a principal."""
    return DeleteAclsFilter(
        resource_type_filter=ResourceType.ANY,
        resource_name_filter=None,
        pattern_type_filter=PatternType.ANY,
        principal_filter=name,
        host_filter=None,
        operation=Operation.ANY,
        permission_type=Permission.ANY,
    )
