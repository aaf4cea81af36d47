"""What has to hold all the time, looked at from outside (cluster-wide, with all memories and disks at hand).

Looked at where it may break: when a state is written to the tree, when a leader's high watermark moves, when a log is
cut, when a role begins, when a client is answered. The code of production knows nothing of it; its methods are wrapped
for the time of a run (`watching`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any
from unittest import mock

from barnabas.broker.leader_replica import LeaderReplica
from barnabas.broker.replica import Replica
from barnabas.coordination import paths
from barnabas.coordination.values import PartitionState, ReplicaSet, decode_config, decode_partition_state, decode_topic
from barnabas.groups.coordinator import GroupEnd
from barnabas.model import TopicPartition
from barnabas.records.header import iter_headers
from barnabas.storage import Log
from barnabas.storage.cleaner.job import CleanedGroup
from barnabas.storage.cleaner.rewriting import Cleaning
from barnabas.storage.data_folders import DataFolders
from barnabas.storage.file_names import CLEAN_SHUTDOWN
from tests.simulation.cluster import DATA, SimulatedCluster
from tests.simulation.committed import Committed, wrong_epochs
from tests.simulation.ensemble import SimulatedSession
from tests.simulation.world import HOST

LOOK_S = 0.5
ENDED_IN_ORDER = Path(DATA, CLEAN_SHUTDOWN)
_state, _topic = lru_cache(decode_partition_state), lru_cache(decode_topic)
"""Looked at again and again between two changes."""
OnState = Callable[[TopicPartition, PartitionState, PartitionState], None]
NOTICED = 2.0
"""After so many session timeouts everybody has noticed that a session was lost, or that it had stood still."""


class Invariants:
    """Looks at all brokers at once, often."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self.broken: list[str] = []
        self._places: list[TopicPartition] = []
        self._watched: list[TopicPartition] = []
        self._state_paths: dict[str, TopicPartition] = {}
        self._leaders: dict[tuple[TopicPartition, int], int] = {}
        self._committed: dict[TopicPartition, Committed] = {}
        self._seen: dict[tuple[str, TopicPartition], int] = {}
        self._starts: dict[tuple[TopicPartition, int], tuple[Log, int]] = {}
        self._cuts: dict[tuple[TopicPartition, int], tuple[Log, int]] = {}
        """Of each log, how often it was cut."""
        self.restored: set[int] = set()
        """The brokers whose disk is an older copy of itself."""
        self._lost_power: set[tuple[int, TopicPartition]] = set()
        """Who lost memory, and has not been out of sync since: it is there by name only."""
        self._untold: set[tuple[int, TopicPartition]] = set()
        """Who lost memory, and has not told so since: taken in for what it had, it is there by name only."""
        self._flushed_late: set[str] = set()
        """Topics that had, until they were changed, a setting by which not each record is on a disk at once."""
        self._passed_on: set[tuple[int, TopicPartition, int]] = set()
        """Who lost memory and was made leader by one that does not know, in which epoch: it must not take that up."""
        self._was_late_s: dict[int, float] = {}
        self.on_state: list[OnState] = []
        """Called with a place and its state before and after, when the tree has another."""
        self.on_advance: list[Callable[[TopicPartition], None]] = []
        """Called with a place where more counts than ever before."""
        self.on_end: list[Callable[[int, TopicPartition, int], None]] = []
        """Called with a broker, a place and where its log ends, when that was opened or cut."""
        self.on_rewritten: list[Callable[[int, Cleaning, CleanedGroup], None]] = []
        """Called with a broker, and what its cleaner has made of which segments, before these are replaced."""
        self.on_group_end: list[Callable[[str], None]] = []
        """Called with a group that a coordinator is about to forget, since it has no members and no offsets."""
        self.unsettled: list[Callable[[], bool]] = []
        """Whether something is about to change which replicas there are."""
        cluster.ensemble.on_set.append(self._state_written)
        cluster.on_end_told = self._end_told
        cluster.on_acknowledged = self._acknowledged

    def begin(self, places: list[TopicPartition]) -> None:
        """Look from now on."""
        self._places = places
        self._state_paths = {paths.partition_state(place): place for place in places}
        self._committed = {place: Committed() for place in places}
        self._task = self._cluster.world.loop.create_task(self._look_often())

    def watch(self, places: Iterable[TopicPartition]) -> None:
        """Look at these as well, as far as one that is compacted or loses its beginning can be looked at."""
        self._watched += places

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Be told what brokers do."""
        with ExitStack() as stack:
            self._after(stack, LeaderReplica, "__init__", self._leads)
            self._after(stack, LeaderReplica, "_advance", self._advanced)
            self._after(stack, Log, "__init__", self._has_end)
            for name in ("truncate_to", "truncate_fully_and_start_at", "lower_log_end_to"):
                self._after(stack, Log, name, self._was_cut)
                self._after(stack, Log, name, self._has_end)
            self._after(stack, Log, "mark_newer_than_tree", self._was_marked_newer)
            self._after(stack, GroupEnd, "__init__", self._group_ends)
            self._after(stack, DataFolders, "note_boot", lambda _: self.note_boot(_here()))
            self._after_answer(stack, Cleaning, "next_group", self._was_rewritten)
            yield

    def _after(self, stack: ExitStack, owner: type, name: str, then: Callable[[Any], None]) -> None:
        self._after_answer(stack, owner, name, lambda which, _: then(which))

    def _after_answer(self, stack: ExitStack, owner: type, name: str, then: Callable[[Any, Any], None]) -> None:
        call = getattr(owner, name)

        def call_and_tell(self: Any, *args: Any, **named: Any) -> Any:
            result = call(self, *args, **named)
            then(self, result)
            return result

        stack.enter_context(mock.patch.object(owner, name, call_and_tell))

    # --- what it is told -----------------------------------------------------------------------------------

    def note_lost_power(self, number: int) -> None:
        """A broker has lost what its machine had in memory: none that counts, where all of that is on its disk. It is
        after a start, too, that came to nothing and ended in order."""
        if self._cluster.machines[number].disk.holds(ENDED_IN_ORDER):
            return
        for place in self._in_tree():
            state = self.state_of(place)
            if state is None or self._is_durable(place):
                continue
            self._untold.add((number, place))
            if number in state.isr:
                self._lost_power.add((number, place))

    def note_restored(self, number: int) -> None:
        """The disk of a broker is an older copy of itself: it may lack what counts, of each partition."""
        self.restored.add(number)
        for place in self._in_tree():
            state = self.state_of(place)
            if state is not None:
                self._untold.add((number, place))
                if number in state.isr:
                    self._lost_power.add((number, place))

    def note_boot(self, number: int) -> None:
        """A broker counts nothing as lost any longer: where it is a replica, it has changed the state, so that nobody
        takes it in any more for what it had."""
        self._untold = {each for each in self._untold if each[0] != number}

    def note_late(self, number: int) -> None:
        """A broker was stopped, or its session was ended although it was heard of: it cannot know in time."""
        self._was_late_s[number] = self._cluster.world.loop.time()

    def may_lose_power(self, numbers: set[int]) -> bool:
        """Whether it is promised that nothing is lost if these lose power now: of each partition one that has all keeps
        its memory, or all that counts is on the disks."""
        for place in self._in_tree():
            if self.state_of(place) is not None and not self._is_durable(place) and not self.members(place) - numbers:
                return False
        return True

    def may_lose_disks(self, numbers: set[int]) -> bool:
        """Whether nothing that counts is lost if these lose what their disks have: of each partition another member has
        all that counts."""
        places = [place for place in self._in_tree() if self.state_of(place) is not None]
        return all(self.members(place) - numbers for place in places)

    def members(self, place: TopicPartition) -> set[int]:
        """Return who is in sync, and not by name only: with all that it had."""
        state = self.state_of(place)
        return set() if state is None else {each for each in state.isr if (each, place) not in self._lost_power}

    def _is_durable(self, place: TopicPartition) -> bool:
        """Whether all that counts of a place is on the disks: brokers flush each record, and the topic says nothing
        else, nor did so before."""
        if self._cluster.settings.get("log_flush_interval_messages") != 1 or place.topic in self._flushed_late:
            return False
        path = paths.topic_config(place.topic)
        node = self._cluster.ensemble.nodes.get(path)
        return node is None or not _is_flushed_late(path, node.data)

    # --- where it may break --------------------------------------------------------------------------------

    def _other_written(self, path: str, old: bytes, new: bytes) -> None:
        """Take note of what is written that is no state of a place that is looked at closely."""
        if (place := _place_of_state(path)) is not None:
            self._check_not_doubted(place, _state(path, new))
            self._note_lost_memory(place, _state(path, old), _state(path, new))
        elif path.startswith(f"{paths.TOPIC_CONFIGS}/") and _is_flushed_late(path, old):
            self._flushed_late.add(paths.decode_name(path.removeprefix(f"{paths.TOPIC_CONFIGS}/")))
        else:
            self._topic_written(path)

    def _note_lost_memory(self, place: TopicPartition, before: PartitionState, after: PartitionState) -> None:
        """Forget who lost memory and is out of sync: before it is taken in again, it fetches what it lacks. A leader
        may still write that one is in sync for what that one had fetched before."""
        self._lost_power |= self._untold & {(each, place) for each in set(after.isr) - set(before.isr)}
        self._lost_power -= {(each, place) for each in self._cluster.machines if each not in after.isr}

    def _topic_written(self, path: str) -> None:
        """Check that who is in sync holds a replica still."""
        name = path.removeprefix(f"{paths.TOPICS}/")
        for place in self._places:
            state = self.state_of(place)
            if place.topic == name and state is not None:
                replicas = self.replica_set_of(place).replicas
                if not set(state.isr) <= set(replicas):
                    self.say(f"{place}: in sync is who has no replica any more: {state}, {replicas}")

    def _state_written(self, session: SimulatedSession, path: str, old: bytes, new: bytes) -> None:
        place = self._state_paths.get(path)
        if place is None:
            self._other_written(path, old, new)
            return
        before, after = _state(path, old), _state(path, new)
        self._check_not_doubted(place, after)
        replicas = self.replica_set_of(place).replicas
        if after.leader >= 0 and after.leader not in after.isr:
            self.say(f"{place}: the leader is not in sync: {after}")
        if not set(after.isr) <= set(replicas):
            self.say(f"{place}: in sync is who has no replica: {after}, {replicas}")
        if after.leader_epoch < before.leader_epoch:
            self.say(f"{place}: the leader epoch went back from {before} to {after}")
        elif after.leader_epoch == before.leader_epoch and before.leader != after.leader:
            self.say(f"{place}: another leader in the same epoch, {before} and {after}")
        is_forgetful = (after.leader, place) in self._lost_power and before.isr != (after.leader,)
        if is_forgetful and after.leader_epoch > before.leader_epoch:
            # Others may hand on to one of whose death they do not know yet, and it may have asked for it before it
            # died: that does not lead before it withdraws.
            claims = session.is_of_the_living and session.host_name == self._cluster.machines[after.leader].name
            if claims:
                self.say(f"{place}: broker {after.leader} lost memory, and leads: {before}, {after}")
            else:
                self._passed_on.add((after.leader, place, after.leader_epoch))
        self._note_lost_memory(place, before, after)
        if before.leader not in (-1, after.leader):
            self._check_has_stopped(place, before, session)
        self._check_in_sync(place, after)
        for call in self.on_state:
            call(place, before, after)

    def _check_not_doubted(self, place: TopicPartition, state: PartitionState) -> None:
        if state.is_doubted:
            self.say(f"{place}: a broker doubts the tree, which never went back: {state}")

    def _check_has_stopped(self, place: TopicPartition, before: PartitionState, session: SimulatedSession) -> None:
        """Check that the leader before leads no longer; one that passes leadership on may do so for an instant more."""
        machine = self._cluster.machines[before.leader]
        partition = self._replica(before.leader, place)
        if not machine.is_up or session.host_name == machine.name or not isinstance(partition, LeaderReplica):
            return
        assert machine.host
        late_s = self._was_late_s.get(before.leader)
        patience_s = NOTICED * self._cluster.ensemble.session_timeout_s
        is_late = late_s is not None and self._cluster.world.loop.time() - late_s < patience_s
        cannot_know = is_late or machine.host.is_stopped
        if partition.is_led and partition.leader_epoch <= before.leader_epoch and not cannot_know:
            self.say(f"{place}: broker {before.leader} leads on, and another leads from now on")

    def _check_in_sync(self, place: TopicPartition, state: PartitionState) -> None:
        """Check that all in-sync replicas have all that counts."""
        committed = self._committed[place]
        for number in state.isr:
            log = self.log_of(number, place)
            if log is None or log.is_offline or (number, place) in self._lost_power:
                continue
            if what := committed.difference(number, log):
                self.say(f"{place}: broker {number} is in sync, and {what}; {state}")

    def _leads(self, partition: LeaderReplica) -> None:
        number, place = _here(), partition.topic_partition
        if place not in self._committed and place not in self._watched:
            return
        other = self._leaders.setdefault((place, partition.leader_epoch), number)
        if other != number:
            self.say(f"{place}: brokers {other} and {number} both led in epoch {partition.leader_epoch}")
        if (number, place, partition.leader_epoch) in self._passed_on:
            self.say(f"{place}: broker {number} lost memory, and leads in epoch {partition.leader_epoch}")
        if place in self._committed:
            self._check_epochs(number, place, partition.log)

    def _check_epochs(self, number: int, place: TopicPartition, log: Log) -> None:
        if not log.is_offline and (what := wrong_epochs(log)):
            self.say(f"{place}: broker {number} {what}")

    def _advanced(self, partition: LeaderReplica) -> None:
        place = partition.topic_partition
        committed = self._committed.get(place)
        if committed is None or partition.log.high_watermark <= committed.end or partition.log.is_offline:
            return
        committed.go_on(partition.log)
        for call in self.on_advance:
            call(place)
        state = self.state_of(place)
        if state is not None:
            self._check_in_sync(place, state)

    def _was_cut(self, log: Log) -> None:
        topic, _, partition = log.folder.name.rpartition("-")
        place = TopicPartition(topic, int(partition)) if partition.isdigit() else None
        committed = self._committed.get(place) if place else None
        if committed is None or place is None:
            return
        number, state = _here(), self.state_of(place)
        committed.cut(number, log.log_end_offset)
        self._check_cut(number, place, log)
        is_member = state is not None and number in state.isr and (number, place) not in self._lost_power
        if is_member and log.log_end_offset < committed.end:
            end = log.log_end_offset
            self.say(f"{place}: broker {number} is in sync, and cut its log to {end}, below {committed.end}")

    def _was_marked_newer(self, log: Log) -> None:
        self.say(f"{log.partition}: broker {_here()} counts its log as newer than the tree, which never went back")

    def _has_end(self, log: Log) -> None:
        for call in self.on_end:
            call(_here(), log.partition, log.log_end_offset)

    def _was_rewritten(self, cleaning: Cleaning, group: CleanedGroup | None) -> None:
        for call in self.on_rewritten if group is not None else ():
            call(_here(), cleaning, group)

    def _group_ends(self, end: GroupEnd) -> None:
        for call in self.on_group_end:
            call(end.group.group_id)

    def _check_cut(self, number: int, place: TopicPartition, log: Log) -> None:
        """Check that a log knows nothing any more of the epochs that were cut off."""
        end, (known, cuts) = log.log_end_offset, self._cuts.get((place, number), (log, 0))
        self._cuts[place, number] = log, log.truncation_count
        if log.truncation_count == (cuts if known is log else 0):
            return  # there was nothing to cut off
        for epoch, start in log.leader_epochs.entries:
            if start >= end:
                self.say(f"{place}: broker {number} cut its log to {end}, and knows epoch {epoch} from {start} on")

    def _end_told(self, client: str, place: TopicPartition, end: int) -> None:
        if place not in self._committed:
            return
        seen = self._seen.get((client, place), 0)
        if end < seen:
            self.say(f"{place}: {client} was told that the log ends at {seen}, and then at {end}")
        self._seen[client, place] = max(seen, end)

    def _acknowledged(self, place: TopicPartition, offset: int) -> None:
        committed = self._committed.get(place)
        if committed is not None and offset >= committed.end:
            self.say(f"{place}: offset {offset} was acknowledged, and no high watermark has reached it")

    # --- looking often, and at the end ---------------------------------------------------------------------

    async def _look_often(self) -> None:
        while True:
            self.look()
            await asyncio.sleep(LOOK_S)

    def look(self) -> None:
        """Check what nobody tells."""
        for place in self._places:
            for number in self.members(place):
                log = self.log_of(number, place)
                if log is None:
                    continue
                known, start = self._starts.get((place, number), (None, 0))
                if known is log and log.log_start_offset < start:
                    self.say(f"{place}: the log of broker {number} began at {start}, now at {log.log_start_offset}")
                self._starts[place, number] = log, log.log_start_offset

    def is_whole(self) -> bool:
        """Whether all replicas of all topics are in sync, by what the tree says."""
        if any(is_unsettled() for is_unsettled in self.unsettled):
            return False
        for place in self._in_tree():
            state = self.state_of(place)
            if self.replica_set_of(place).is_moving:
                return False
            if state is None or len(state.isr) < 3 or state.leader < 0:
                return False
            ends = {log and log.log_end_offset for log in (self.log_of(number, place) for number in state.isr)}
            if len(ends) != 1 or None in ends:
                return False
        return True

    def check_equal(self) -> None:
        """Check that in-sync replicas have the same bytes up to the high watermark."""
        for place in self._places:
            state = self.state_of(place)
            if state is None:
                continue
            present = {number: log for number in state.isr if (log := self.log_of(number, place)) is not None}
            if len(present) < len(state.isr):
                self.say(f"{place}: of {state} only {sorted(present)} have a log")
            self._check_in_sync(place, state)
            for number, log in present.items():
                self._check_epochs(number, place, log)
        for place in self._watched:
            self._check_same(place)

    def _check_same(self, place: TopicPartition) -> None:
        """Check that in-sync replicas have the same bytes, where nothing was taken away."""
        state = self.state_of(place)
        if state is None:
            return
        present = {number: log for number in state.isr if (log := self.log_of(number, place)) is not None}
        if any(log.config.is_compacted for log in present.values()):
            return  # each is cleaned at another time
        if len(present) < len(state.isr):
            self.say(f"{place}: of {state} only {sorted(present)} have a log")
            return
        if not present:
            return  # nobody is in sync who could be compared
        # Followers learn later how far the high watermark is.
        end = min(log.high_watermark for log in present.values())
        start = max(log.log_start_offset for log in present.values())
        if len({bytes_between(log, start, end) for log in present.values()}) > 1:
            self.say(f"{place}: in-sync replicas differ below offset {end}")

    def first(self) -> TopicPartition | None:
        """Return the first partition, at which faults are aimed."""
        return self._places[0] if self._places else None

    def leader_of_first(self) -> int:
        """Return who leads the first partition, by what the tree says; 0 if nobody does."""
        state = self.state_of(self._places[0]) if self._places else None
        return max(0, state.leader) if state is not None else 0

    def follower_of_first(self) -> int:
        """Return who is in sync there beside the leader; 0 if nobody is."""
        state = self.state_of(self._places[0]) if self._places else None
        return next((each for each in state.isr if each != state.leader), 0) if state is not None else 0

    def _in_tree(self) -> list[TopicPartition]:
        """Return the partitions of all topics that there are."""
        return [place for path in self._cluster.ensemble.nodes if (place := _place_of_state(path)) is not None]

    def state_of(self, place: TopicPartition) -> PartitionState | None:
        """Return what the tree says of a place."""
        path = paths.partition_state(place)
        node = self._cluster.ensemble.nodes.get(path)
        return None if node is None else _state(path, node.data)

    def replica_set_of(self, place: TopicPartition) -> ReplicaSet:
        """Return the replicas of a place, and what is to become of them, by what the tree says."""
        path = paths.topic(place.topic)
        return _topic(path, self._cluster.ensemble.nodes[path].data).replica_set(place.partition)

    def log_of(self, number: int, place: TopicPartition) -> Log | None:
        """Return a broker's log of a place, if it is up and has one."""
        replica = self._replica(number, place)
        return None if replica is None else replica.log

    def _replica(self, number: int, place: TopicPartition) -> Replica | None:
        broker = self._cluster.machines[number].broker
        topics = getattr(broker, "topics", None)
        return None if topics is None else topics.replicas.get(place)

    def say(self, what: str) -> None:
        """Tell what has been broken, once."""
        if what not in self.broken:
            self.broken.append(what)
            self._cluster.world.tell(f"BROKEN: {what}")


def _place_of_state(path: str) -> TopicPartition | None:
    """Return whose state a node of the tree holds; None if it holds something else."""
    parts = path.split("/")
    if len(parts) == 7 and path.startswith(f"{paths.TOPICS}/") and parts[6] == "state":
        return TopicPartition(parts[3], int(parts[5]))
    return None


def _is_flushed_late(path: str, config: bytes) -> bool:
    """Whether a topic has a setting by which not each record is on a disk at once."""
    return decode_config(path, config).get("flush.messages", "1") != "1"


def _here() -> int:
    """Return the number of the broker that runs."""
    host = HOST.get()
    assert host is not None
    return int(host.name.rpartition("-")[2])


def bytes_between(log: Log, offset: int, end: int) -> bytes:
    """Return all that a log has from an offset up to another."""
    parts = []
    while offset < end and (region := log.read(offset, 1 << 20, end).batches):
        data = log.bytes_of(region)
        parts.append(bytes(data))
        offset = max(header.next_offset for _, header in iter_headers(data))
    return b"".join(parts)
