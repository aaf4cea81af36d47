"""The check that no broker serves a principal whose permission was revoked.

The rules (docs/explanation/security.md):

- A broker in contact with the metadata store applies a revocation within `IN_FORCE_S`.
- A broker without contact may apply its last ACLs until its session has expired. Then it serves no records, and stores
  no records and offsets.
- A broker with a new session applies all ACLs of the metadata store before it leads partitions again.

The permissions are those in the metadata store. The check sees each response where a broker encodes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple
from unittest import mock

from barnabas.broker.pipeline.call import Call, RunCall
from barnabas.broker.pipeline.chain import RequestCounts
from barnabas.coordination import acls, paths
from barnabas.coordination.metadata_store import NodeData, Operation
from barnabas.security.acls import Operation as Permission
from barnabas.security.acls import PatternType, ResourceType
from barnabas.security.authorizer import Acls, Authorizer
from barnabas.security.principal import Principal
from tests.simulation.cluster import Machine, SimulatedCluster
from tests.simulation.ensemble import SLOW_S
from tests.simulation.world import HOST

IN_FORCE_S = 1.0
"""The time within which a change of ACLs is in force, whatever the scale of a run."""
LOOK_S = 0.02
"""The interval at which the brokers are observed. It is added to each limit."""
ACL_ROOTS = tuple(f"{paths.acl_root(each)}/" for each in (PatternType.LITERAL, PatternType.PREFIXED))
PRODUCE, FETCH, METADATA, OFFSET_COMMIT = 0, 1, 3, 8


class Need(NamedTuple):
    """An operation that a principal needs for a kind of request."""

    principal: Principal
    operation: Permission
    kind: ResourceType
    name: str


@dataclass
class _Contact:
    """The contact of one broker with the metadata store.

    :ivar well_since_s: the time since which the broker has been running, in contact and registered without a fault;
        None if it is not.
    :ivar lost_since_s: the time since which the broker has been running without contact; None if it is not.
    :ivar session_id: the session of the broker. `session_since_s` is the time at which it was first observed.
    """

    host: object = None
    well_since_s: float | None = None
    lost_since_s: float | None = None
    session_id: int | None = None
    session_since_s: float = 0.0
    slow_until_s: float = 0.0


class AccessCheck:
    """Observes the permissions in the metadata store, the brokers, and their responses.

    :param say: reports a violation.
    """

    def __init__(self, cluster: SimulatedCluster, needs: dict[int, Sequence[Need]], say: Callable[[str], None]) -> None:
        self._cluster = cluster
        self._needs = needs
        """The needs of each API, by key. All requests of an API concern the same resources."""
        self._say = say
        self._denied_since_s: dict[Need, float | None] = {}
        self._contacts = {machine.name: _Contact() for machine in cluster.machines.values()}
        self.served = 0
        """The number of served requests of the observed principals."""
        self._note_permissions()
        cluster.ensemble.on_write.append(self._on_write)

    # --- observation of the metadata store and the brokers ----------------------------------------------------

    def look(self) -> None:
        """Observe the brokers."""
        now_s = self._cluster.world.loop.time()
        for machine in self._cluster.machines.values():
            self._note_contact(machine, self._contacts[machine.name], now_s)

    def _on_write(self, operations: Sequence[Operation]) -> None:
        if any(each.path.startswith(ACL_ROOTS) for each in operations):
            self._note_permissions()

    def _note_permissions(self) -> None:
        now_s = self._cluster.world.loop.time()
        found = acls.read_acls(_Nodes(self._cluster))  # type: ignore[arg-type]
        authorizer = Authorizer(Acls.of_patterns(found))
        for need in {need for needs in self._needs.values() for need in needs}:
            is_allowed = authorizer.allows(need.principal, "client", need.operation, need.kind, need.name)
            if is_allowed:
                self._denied_since_s[need] = None
            elif self._denied_since_s.get(need) is None:
                self._denied_since_s[need] = now_s

    def _note_contact(self, machine: Machine, contact: _Contact, now_s: float) -> None:
        host, ensemble = machine.host, self._cluster.ensemble
        if host is not contact.host:
            contact.host, contact.well_since_s, contact.lost_since_s = host, None, None
        if host is None or not host.is_alive or host.is_stopped:
            contact.well_since_s = contact.lost_since_s = None
            return
        session_id = max((key for key, each in ensemble.sessions.items() if each.host_name == host.name), default=None)
        if session_id != contact.session_id:
            contact.session_id, contact.session_since_s = session_id, now_s
        is_in_contact = ensemble.reaches(host) and session_id is not None
        is_slow = bool(self._cluster.network.slow) or host.name in ensemble.slow or host.name in ensemble.deaf
        if is_slow:
            contact.slow_until_s = now_s + SLOW_S  # an operation may be on its way
        is_well = is_in_contact and now_s >= contact.slow_until_s
        contact.well_since_s = _since(contact.well_since_s, now_s, is_well)
        contact.lost_since_s = _since(contact.lost_since_s, now_s, not is_in_contact)

    # --- observation of responses ------------------------------------------------------------------------------

    def note(self, call: Call, response: Any) -> None:
        """Observe a response at the moment of its encoding."""
        served = _SERVED.get(call.served.key)
        principal = call.connection.principal
        needs = [each for each in self._needs.get(call.served.key, ()) if each.principal == principal]
        if served is None or not needs or not served(response):
            return
        self.served += 1
        host = HOST.get()
        assert host is not None
        now_s = self._cluster.world.loop.time()
        # Authorization at the arrival of a request counts, except for fetches, which wait for records.
        at_s = now_s if call.served.key == FETCH else call.began_s / host.clock.rate
        contact = self._contacts[host.name]
        for need in needs:
            denied_since_s = self._denied_since_s[need]
            if denied_since_s is None:
                continue
            if (
                contact.session_id is not None
                and call.served.key in (PRODUCE, OFFSET_COMMIT)
                and denied_since_s < contact.session_since_s - LOOK_S <= at_s
            ):
                self._say(
                    f"{host.name} serves {call.served.api.name} of {principal} in a new session:"
                    f" {need.operation.name} on {need.name} was revoked before"
                )
            if contact.well_since_s is not None:
                late_s = at_s - max(denied_since_s, contact.well_since_s) - IN_FORCE_S - LOOK_S
                where = "in contact with the metadata store"
            elif contact.lost_since_s is not None and call.served.key != METADATA:
                session_s = self._cluster.ensemble.session_timeout_s
                late_s = at_s - max(denied_since_s, contact.lost_since_s) - session_s - IN_FORCE_S - LOOK_S
                where = "without contact with the metadata store"
            else:
                continue
            if late_s > 0:
                self._say(
                    f"{host.name}, {where}, serves {call.served.api.name} of {principal} {late_s:.3f} s too late:"
                    f" {need.operation.name} on {need.name} was revoked {at_s - denied_since_s:.3f} s before"
                )


_Note = Callable[[Call, Any], None]
_notes: list[_Note] = []
"""The observers of all responses in this process."""


@contextmanager
def watching_responses() -> Iterator[None]:
    """Patch the brokers that start from now on, so that `on_response` works."""
    leave, leave_run = RequestCounts.leave, RequestCounts.leave_run

    def leave_and_note(stage: RequestCounts, call: Call, response: Any, size: int) -> None:
        leave(stage, call, response, size)
        _note_all(call, response)

    def leave_run_and_note(stage: RequestCounts, call: RunCall, responses: Sequence[Any], size: int) -> None:
        leave_run(stage, call, responses, size)
        for response in responses:
            if response is None or type(response) is bytes:  # `leave` has noted all others
                _note_all(call, response)

    with (
        mock.patch.object(RequestCounts, "leave", leave_and_note),
        mock.patch.object(RequestCounts, "leave_run", leave_run_and_note),
    ):
        try:
            yield
        finally:
            _notes.clear()


def on_response(note: _Note) -> None:
    """Call a function with each response of the brokers, until the end of the run."""
    _notes.append(note)


def _note_all(call: Call, response: Any) -> None:
    for note in _notes:
        note(call, response)


def _since(since_s: float | None, now_s: float, holds: bool) -> float | None:
    if not holds:
        return None
    return now_s if since_s is None else since_s


def _codes(parts: Iterable[Iterable[Any]]) -> bool:
    return any(part.error_code == 0 for each in parts for part in each)


_SERVED: Mapping[int, Callable[[Any], bool]] = {
    # Templates create frames of successful responses only, as bytes.
    PRODUCE: lambda found: type(found) is bytes or _codes(each.partition_responses for each in found.responses),
    FETCH: lambda found: _codes(each.partitions for each in found.responses),
    METADATA: lambda found: any(each.error_code == 0 for each in found.topics),
    OFFSET_COMMIT: lambda found: type(found) is bytes or _codes(each.partitions for each in found.topics),
}
"""Functions that find out whether a response contains the requested data, or confirms the request, by API key."""


class _Nodes:
    """The nodes of the simulated metadata store, as `read_acls` reads them."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._ensemble = cluster.ensemble

    def children(self, path: str) -> list[str]:
        return sorted(each.rpartition("/")[2] for each in self._ensemble.node(path).children)

    def get_all(self, paths: Sequence[str]) -> dict[str, NodeData]:
        nodes = {path: self._ensemble.node(path) for path in paths}
        return {path: NodeData(node.data, self._ensemble.stat_of(node)) for path, node in nodes.items()}
