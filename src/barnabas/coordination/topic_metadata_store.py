"""The metadata of the cluster in the metadata tree: brokers, topics, partition states, cluster id, producer ids.

Typed functions over any `MetadataStore`; the nodes and their JSON are Kafka's (docs/explanation/coordination.md lists
them). A
value that several brokers change is read with the version of its node and written with that version. A
`BadVersionError` then means that another broker was faster, and the caller has to read again.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from barnabas.addresses import host_port
from barnabas.coordination import paths
from barnabas.coordination.change_notifications import ChangeNotification, StateChange, notification_node
from barnabas.coordination.configs import settings_in
from barnabas.coordination.damaged_nodes import report_damaged, usable_names
from barnabas.coordination.fields import DamagedNodeError, is_topic_name
from barnabas.coordination.large_topics import (
    PARTITIONS_AT_ONCE,
    create_in_steps,
    delete_in_steps,
    grow_in_steps,
    is_large,
    is_unfinished,
    partition_nodes,
)
from barnabas.coordination.metadata_store import (
    BadVersionError,
    Check,
    Create,
    Delete,
    MetadataStore,
    NodeData,
    NodeError,
    NodeExistsError,
    NoNodeError,
    Operation,
    Set,
    Watch,
)
from barnabas.coordination.subtrees import delete_all, ensure_paths
from barnabas.coordination.topic_deletions import check_topic, guards, guards_by_notes
from barnabas.coordination.values import (
    NO_LEADER,
    UNREADABLE,
    BrokerRegistration,
    LiveBroker,
    PartitionState,
    ProducerIdCounter,
    ReplicaSet,
    TopicAssignment,
    decode_broker,
    decode_cluster_id,
    decode_partition_state,
    decode_producer_id_counter,
    decode_topic,
    encode_broker,
    encode_cluster_id,
    encode_config,
    encode_partition_state,
    encode_producer_id_block,
    encode_topic,
)
from barnabas.errors import CoordinationError
from barnabas.model import NO_PRODUCER_ID, TopicPartition

PRODUCER_ID_BLOCK_SIZE = 1_000
PRODUCER_IDS_PASSED_OVER = 1_000_000
"""So many ids are passed over when the counter was below an id that is in use."""
"""How many producer ids a broker takes at a time, as in Kafka."""

STATES_AT_ONCE = 800
"""Partition states that are changed in one step; ZooKeeper takes up to a megabyte."""

TOPICS_AT_ONCE = 100
"""Topics that are read together."""


_NONE: Mapping[int, LiveBroker] = {}
_NO_VERSIONS: Mapping[str, int] = {}

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """A partition's replicas and its state; `version` is what a compare-and-set of the state must name.

    :param adding: while the replicas are being changed, those that are new; `removing`: those that are to go.
    """

    replicas: tuple[int, ...]
    state: PartitionState
    version: int
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def replica_set(self) -> ReplicaSet:
        """The replicas, with what is to become of them."""
        return ReplicaSet(self.replicas, self.adding, self.removing)


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """All that the tree knows of a topic; `partitions` by partition number.

    :param version: of the topic's node, which has the replicas.
    :param has_unreadable_config: whether it is not known what is configured for the topic.
    """

    name: str
    topic_id: bytes
    partitions: tuple[PartitionInfo, ...]
    config: dict[str, str] = field(default_factory=dict)
    version: int = 0
    has_unreadable_config: bool = False
    created_at: int = field(default=0, compare=False)
    """When the topic's node was created, as `Stat.created_at` counts; 0 where that was not read."""


# -- the cluster and its brokers ---------------------------------------------------------------------------


def prepare(tree: MetadataStore, new_cluster_id: str, known_cluster_id: str | None = None) -> str:
    """Create the nodes under which all else stands, if they are missing, and return the cluster's id.

    A new id survives a loss of power before it is returned: the logs' folder bears it from then on.

    :param new_cluster_id: becomes the cluster's id if it has none yet.
    :param known_cluster_id: the id in the broker's data folder. It becomes the cluster's id where the node was damaged,
        or was deleted from a tree that has topics. In an empty tree it does not: the broker may have a wrong address.
    :raises NewerFormatError: a newer release has written what stands there.
    """
    ensure_roots(tree)
    while True:
        new = known_cluster_id if known_cluster_id and tree.children(paths.TOPICS) else new_cluster_id
        try:
            tree.create(paths.CLUSTER_ID, encode_cluster_id(new), make_parents=True)
            break
        except NodeExistsError:
            data, stat = tree.get(paths.CLUSTER_ID)
        try:
            return decode_cluster_id(paths.CLUSTER_ID, data)
        except DamagedNodeError as error:
            report_damaged(tree, [error], "writing the cluster's id again to")
        new = known_cluster_id or new_cluster_id
        try:
            tree.set(paths.CLUSTER_ID, encode_cluster_id(new), stat.version)
            break
        except (BadVersionError, NoNodeError):
            continue  # another broker was faster
    tree.flush()
    return new


def ensure_roots(tree: MetadataStore) -> None:
    """Create the nodes under which all else stands, where somebody deleted them."""
    ensure_paths(tree, [paths.BROKER_IDS, paths.TOPICS, paths.CHANGES, paths.TOPIC_CONFIGS, paths.CONSUMERS])
    ensure_paths(tree, [paths.REMOVED_REPLICAS])


def register_broker(tree: MetadataStore, broker: BrokerRegistration) -> int:
    """Tell the others that this broker is alive, for as long as the tree's session lives; return its epoch.

    A node that an earlier session of the same data folder left is replaced: its broker is dead, since this one holds
    the folder's lock, or is this one (KAFKA-7165). What a session has told already is told anew.

    :raises NodeExistsError: another broker with this id is alive.
    """
    ensure_paths(tree, [paths.BROKER_IDS, paths.CHANGES])
    path, data = paths.broker(broker.id), encode_broker(broker)
    change = notification_node(ChangeNotification(brokers=(broker.id,)))
    create = Create(path, data, ephemeral=True)
    try:
        found, stat = tree.get(path)
    except NoNodeError:
        tree.multi([create, change])
        return broker.epoch or tree.get(path).stat.created_at
    if stat.owner == tree.session_id:
        tree.multi([Set(path, data), change])
        return broker.epoch or stat.created_at
    try:
        other = decode_broker(path, found)
    except DamagedNodeError as error:
        raise NodeExistsError(path, f"a broker with this id may be alive: {error.reason}: {error.detail}") from error
    if not broker.folder_id or other.folder_id != broker.folder_id:
        raise NodeExistsError(path, f"a broker with this id is alive at {host_port(other.host, other.port)}")
    tree.multi([Delete(path, stat.version), create, change])
    return broker.epoch or tree.get(path).stat.created_at


def is_registered(tree: MetadataStore, broker_id: int) -> bool:
    """Return whether there is a registration with this id."""
    return tree.exists(paths.broker(broker_id)) is not None


def is_as_registered(tree: MetadataStore, broker: BrokerRegistration) -> bool:
    """Return whether the registration that this session wrote is unchanged; true also where it wrote none."""
    path = paths.broker(broker.id)
    try:
        data, stat = tree.get(path)
        found = decode_broker(path, data)
    except NoNodeError:
        return True
    except DamagedNodeError:
        return stat.owner != tree.session_id
    return stat.owner != tree.session_id or replace(found, timestamp_ms=broker.timestamp_ms) == broker


def read_broker_epochs(tree: MetadataStore, broker_ids: Iterable[int]) -> dict[int, int]:
    """Return the epochs of those of some brokers that are alive, by id."""
    paths_of = {each: paths.broker(each) for each in broker_ids}
    found = tree.get_all(list(paths_of.values()))
    epochs = {}
    for each, path in paths_of.items():
        if path in found:
            with suppress(DamagedNodeError):
                epochs[each] = LiveBroker.of(decode_broker(path, found[path].data), found[path].stat.created_at).epoch
    return epochs


def read_brokers(
    tree: MetadataStore,
    watch: Watch | None = None,
    known: Mapping[int, LiveBroker] = _NONE,
) -> dict[int, LiveBroker]:
    """Return the brokers that are alive, by id. The watch fires when one comes or goes.

    A registration that cannot be understood is reported and skipped, unless it could be when it was read last.

    :param known: what was read last.
    """
    brokers = {}
    damaged: list[NodeError] = []
    for name in tree.children(paths.BROKER_IDS, watch):
        path = f"{paths.BROKER_IDS}/{name}"
        try:
            data, stat = tree.get(path)
            registration = decode_broker(path, data)
        except NoNodeError:
            continue  # it has just gone
        except DamagedNodeError as error:
            damaged.append(error)
            before = next((each for each in known.values() if each.created_at == stat.created_at), None)
            if before is not None:
                brokers[before.registration.id] = before
            continue
        brokers[registration.id] = LiveBroker.of(registration, stat.created_at)
    report_damaged(tree, damaged)
    return dict(sorted(brokers.items()))


# -- topics ------------------------------------------------------------------------------------------------


def create_topic(
    tree: MetadataStore,
    name: str,
    topic_id: bytes,
    replicas: Sequence[Sequence[int]],
    config: Mapping[str, str] | None = None,
    live: Collection[int] | None = None,
) -> TopicInfo:
    """Create a topic in one step: assignment, configuration, and a state for each partition.

    A large one is made in several steps, and is there when the last of them is done (`large_topics`).

    :param replicas: for each partition the brokers that hold it; the first one that lives leads.
    :param live: the brokers that live; None: all of them do. The others are not in sync.
    :raises NodeExistsError: there is a topic of this name.
    """
    ensure_paths(tree, [paths.DELETED_TOPIC_IDS])  # what is written of its partitions looks there
    assignment = TopicAssignment(bytes(topic_id), tuple(tuple(each) for each in replicas))
    states = [_first_state(each, live) for each in assignment.replicas]
    version = 0
    if not _is_created_at_once(tree, name, assignment, states, config):
        version = create_in_steps(tree, name, assignment, states, config or {})
    partitions = tuple(map(PartitionInfo, assignment.replicas, states, [0] * len(states)))
    return TopicInfo(name, assignment.topic_id, partitions, dict(config or {}), version)


def _is_created_at_once(
    tree: MetadataStore,
    name: str,
    assignment: TopicAssignment,
    states: Sequence[PartitionState],
    config: Mapping[str, str] | None,
) -> bool:
    """Create a topic, unless it is large or what is left of another stands in the way."""
    if len(states) > PARTITIONS_AT_ONCE:
        return False
    operations: list[Operation] = [
        Create(paths.topic(name), encode_topic(assignment)),
        Create(paths.topic_partitions(name)),
    ]
    if config:
        operations.append(Create(paths.topic_config(name), encode_config(config)))
    operations += partition_nodes(name, 0, states)
    try:
        _multi_with_parents(tree, [*operations, notification_node(ChangeNotification(topics=(name,)))])
    except NodeExistsError:
        if not is_unfinished(tree, name):
            raise
        return False
    return True


def grow_topic(
    tree: MetadataStore,
    name: str,
    added: Sequence[Sequence[int]],
    from_count: int,
    live: Collection[int] | None = None,
    topic_id: bytes | None = None,
) -> int:
    """Give a topic more partitions than `from_count`, together; return how many it has now.

    Adds none where it has others already, so it can be repeated if its outcome is not known.

    :param added: the replicas of each new partition.
    :param live: as in `create_topic`.
    :param topic_id: of the topic that is meant; None: whichever has the name.
    :raises NoNodeError: there is no such topic.
    :raises BadVersionError: somebody else changed the topic meanwhile.
    """
    path = paths.topic(name)
    data, stat = tree.get(path)
    found = decode_topic(path, data)
    count = len(found.replicas)
    if not count:
        raise NoNodeError(path, "the topic is being made or deleted")
    if topic_id is not None and found.topic_id != topic_id:
        raise NoNodeError(path, "another topic has this name")
    if count == from_count:
        replicas = tuple(tuple(each) for each in added)
        wanted = replace(found, replicas=found.replicas + replicas)
        states = [_first_state(each, live) for each in replicas]
        if not _is_grown_at_once(tree, name, wanted, stat.version, states):
            grow_in_steps(tree, name, wanted, stat.version, states)
        count += len(replicas)
    tree.flush()
    return count


def _is_grown_at_once(
    tree: MetadataStore, name: str, wanted: TopicAssignment, version: int, states: Sequence[PartitionState]
) -> bool:
    """Add partitions, unless they are many or what is left of an earlier attempt stands in the way."""
    if len(states) > PARTITIONS_AT_ONCE:
        return False
    operations = partition_nodes(name, len(wanted.replicas) - len(states), states)
    try:
        tree.multi(
            [
                Set(paths.topic(name), encode_topic(wanted), version),
                *operations,
                notification_node(ChangeNotification(topics=(name,))),
            ]
        )
    except NodeExistsError:
        return False
    return True


def delete_topic(tree: MetadataStore, name: str, *checks: Operation) -> bool:
    """Delete a topic and its configuration in one step; False if there is none of this name.

    A large one vanishes at once as well, and its nodes go in several steps (`large_topics`).

    :param checks: what is written with it, or must hold: what `note_deletion` returned, so that the deletion is noted
        still as that has done it.
    :raises NodeError: that does not hold; nothing was deleted.
    """
    if is_large(tree, name):
        is_deleted = delete_in_steps(tree, name, checks)
    else:
        nodes = [paths.topic_config(name), paths.topic(name)]
        is_deleted = delete_all(tree, nodes, [notification_node(ChangeNotification(topics=(name,)))], checks)
    tree.flush()
    return is_deleted


def take_topic_back(tree: MetadataStore, made: TopicInfo) -> bool:
    """Delete a topic that this broker has just made, alone, and of which it has nothing; False if others have changed
    or deleted it since.

    So no note is needed (`note_deletion`), for which a full disk may have no room. Another topic that has its name by
    now stays.
    """
    while True:
        guard = guards_by_notes(tree, {made.topic_id: made.name}).get(made.topic_id)
        is_there = check_topic(tree, made.topic_id, made.name)
        if guard is None or is_there is None or is_there.version != made.version:
            return False
        try:
            return delete_topic(tree, made.name, is_there, *guard)
        except (BadVersionError, NodeExistsError, NoNodeError):
            continue  # somebody has just changed it, or the note of its deletion


def must_move_offsets(tree: MetadataStore) -> bool:
    """Whether an earlier release left the offsets of groups in the tree. If it did not, that is noted."""
    if tree.exists(paths.OFFSETS_MOVED) is not None:
        return False
    if tree.children(paths.CONSUMERS):
        return True
    note_offsets_moved(tree)
    return False


def note_offsets_moved(tree: MetadataStore) -> None:
    """Note durably that they are in the log now."""
    ensure_paths(tree, [paths.OFFSETS_MOVED])
    tree.flush()


def read_topics(tree: MetadataStore, watch: Watch | None = None) -> dict[str, TopicInfo]:
    """Return all topics by name. The watch fires when a topic is created or deleted.

    :raises NodeError: what the nodes of a topic say cannot be understood.
    """
    topics = {}
    for name, topic in each_topic(tree, watch):
        if isinstance(topic, NodeError):
            raise topic
        topics[name] = topic
    return topics


def each_topic(tree: MetadataStore, watch: Watch | None = None) -> Iterator[tuple[str, TopicInfo | NodeError]]:
    """Yield the names of all topics and what the tree knows of each; or, of a topic whose nodes cannot be understood,
    why not. A few at a time: there may be ten thousand partitions."""
    names = _topic_names(tree, tree.children(paths.TOPICS, watch))
    for start in range(0, len(names), TOPICS_AT_ONCE):
        yield from _read_topics(tree, names[start : start + TOPICS_AT_ONCE])


def _topic_names(tree: MetadataStore, parts: Iterable[str]) -> list[str]:
    """Return the names of topics, without names that no topic can have."""
    names = usable_names(tree, paths.TOPICS, parts)
    strange = [name for name in names if not is_topic_name(name)]
    report_damaged(tree, [DamagedNodeError(paths.topic(name), "no topic can have its name") for name in strange])
    return [name for name in names if is_topic_name(name)]


def read_topic(tree: MetadataStore, name: str) -> TopicInfo | None:
    """Return one topic, or None if there is none of this name.

    :raises NodeError: what its nodes say cannot be understood.
    """
    for _, topic in _read_topics(tree, [name]):
        if isinstance(topic, NodeError):
            raise topic
        return topic
    return None


def _read_topics(tree: MetadataStore, names: Sequence[str]) -> Iterator[tuple[str, TopicInfo | NodeError]]:
    """Yield those of the topics that there are."""
    nodes = tree.get_all([path for name in names for path in (paths.topic(name), paths.topic_config(name))])
    found: dict[str, TopicAssignment | NodeError] = {}
    for name in names:
        path = paths.topic(name)
        if path in nodes:
            try:
                found[name] = decode_topic(path, nodes[path].data)
            except NodeError as error:
                found[name] = error
    nodes |= tree.get_all([path for name, each in found.items() for path in _state_paths(name, each)])
    for name, each in found.items():
        topic = each if isinstance(each, NodeError) else _topic_info(tree, name, each, nodes)
        if topic is not None:
            yield name, topic


def _state_paths(name: str, assignment: TopicAssignment | NodeError) -> list[str]:
    count = 0 if isinstance(assignment, NodeError) else len(assignment.replicas)
    return [paths.partition_state(TopicPartition(name, number)) for number in range(count)]


# -- partition states --------------------------------------------------------------------------------------


def read_partition_state(
    tree: MetadataStore, topic_partition: TopicPartition, watch: Watch | None = None
) -> tuple[PartitionState, int]:
    """Return a partition's state and its node's version. The watch fires when it changes.

    :raises NoNodeError: there is no such partition.
    """
    path = paths.partition_state(topic_partition)
    data, stat = tree.get(path, watch)
    return decode_partition_state(path, data), stat.version


def read_partition_states(tree: MetadataStore, wanted: Iterable[StateChange]) -> list[StateChange]:
    """Return, as they are now, the states of the partitions that these changes name; without those that are gone.

    A state that cannot be understood is `UNREADABLE`, so that it does not keep the others from being read.
    """
    found = []
    for each in wanted:
        path = paths.partition_state(each.where)
        try:
            data, stat = tree.get(path)
        except NoNodeError:
            continue
        state, version = _state_of(tree, path, data), stat.version
        found.append(StateChange(each.where, each.topic_id, state, version))
    return found


def write_partition_states(
    tree: MetadataStore, changes: Sequence[StateChange], topic_versions: Mapping[str, int] = _NO_VERSIONS
) -> list[StateChange]:
    """Change the states of partitions whose nodes still have the version before the one named, many in one step.

    The topics must have these ids: a deleted topic with the same name is not changed.

    :param topic_versions: of topics whose nodes must have the version named, too: who takes a replica in has to know
        that it is one still.
    :returns: those that were changed. Of the others the nodes have another version, or are gone: read them again.
    """
    written: list[StateChange] = []
    for start in range(0, len(changes), STATES_AT_ONCE):
        written += _write_states(tree, changes[start : start + STATES_AT_ONCE], topic_versions)
    return written


def _write_states(
    tree: MetadataStore, changes: Sequence[StateChange], topic_versions: Mapping[str, int]
) -> Sequence[StateChange]:
    checks: list[Operation] = [
        Check(paths.topic(name), topic_versions[name]) for name in _with_versions(changes, topic_versions)
    ]
    found = guards(dict.fromkeys(each.topic_id for each in changes))
    while changes:
        operations = [*checks, *(operation for guard in found.values() for operation in guard)]
        operations += [
            Set(paths.partition_state(each.where), encode_partition_state(each.state), each.version - 1)
            for each in changes
        ]
        try:
            tree.multi([*operations, notification_node(ChangeNotification(states=tuple(changes)))])
        except (BadVersionError, NodeExistsError, NoNodeError):
            if tree.exists(paths.DELETED_TOPIC_IDS) is None:
                ensure_paths(tree, [paths.DELETED_TOPIC_IDS])
                continue
            before, found = found, guards_by_notes(tree, {each.topic_id: each.where.topic for each in changes})
            if found == before:
                return _write_others(tree, changes, topic_versions)
            changes = [each for each in changes if each.topic_id in found]
        else:
            return changes
    return changes


def _write_others(
    tree: MetadataStore, changes: Sequence[StateChange], topic_versions: Mapping[str, int]
) -> Sequence[StateChange]:
    """Write those of several states that others have not changed: often very many, where two brokers take over from a
    third. So it is read which."""
    if len(changes) == 1:
        return []
    names = _with_versions(changes, topic_versions)
    refused = {name for name in names if _version(tree, paths.topic(name)) != topic_versions[name]}
    left = [
        each
        for each in changes
        if each.where.topic not in refused and _version(tree, paths.partition_state(each.where)) == each.version - 1
    ]
    if len(left) < len(changes):
        return _write_states(tree, left, topic_versions) if left else left
    middle = len(changes) // 2
    return [
        *_write_states(tree, changes[:middle], topic_versions),
        *_write_states(tree, changes[middle:], topic_versions),
    ]


def _with_versions(changes: Sequence[StateChange], topic_versions: Mapping[str, int]) -> list[str]:
    return sorted({each.where.topic for each in changes} & topic_versions.keys())


def _version(tree: MetadataStore, path: str) -> int | None:
    stat = tree.exists(path)
    return None if stat is None else stat.version


# -- producer ids ------------------------------------------------------------------------------------------


def take_producer_ids(
    tree: MetadataStore,
    broker_id: int,
    size: int = PRODUCER_ID_BLOCK_SIZE,
    attempts: int = 100,
    highest_used: int = NO_PRODUCER_ID,
) -> range:
    """Take a block of producer ids that nobody else ever gets, by compare-and-set (KIP-98).

    It survives a loss of power before it is returned: an id that is given out twice would make a broker take
    new records for duplicates, and drop them.

    :param highest_used: the highest id that the broker knows to be in use; the block is above it.
    """
    for _ in range(attempts):
        try:
            counter, version = _producer_id_counter(tree)
            raised = _raised(counter, highest_used)
            start = raised.end + 1
            _set_counter(tree, version, encode_producer_id_block(broker_id, start, start + size - 1, raised.raised_to))
        except (BadVersionError, NodeExistsError, NoNodeError):
            continue  # another broker took a block in between
        tree.flush()
        return range(start, start + size)
    raise _contended(attempts)


def raise_producer_ids(
    tree: MetadataStore, broker_id: int, highest_used: int, attempts: int = 100
) -> ProducerIdCounter:
    """Raise the counter above an id that is in use, if it is below; return the counter.

    A counter that is missing or below comes from a tree that is older than the logs.
    """
    for _ in range(attempts):
        try:
            counter, version = _producer_id_counter(tree)
            raised = _raised(counter, highest_used)
            if raised == counter:
                return counter
            _set_counter(tree, version, encode_producer_id_block(broker_id, raised.end, raised.end, raised.raised_to))
        except (BadVersionError, NodeExistsError, NoNodeError):
            continue
        tree.flush()
        return raised
    raise _contended(attempts)


def _raised(counter: ProducerIdCounter, highest_used: int) -> ProducerIdCounter:
    """Return the counter above an id that is in use.

    Where it was below, it passes over a million ids more: others that were allocated may not have been used yet.
    """
    if highest_used <= counter.end:
        return counter
    raised = ProducerIdCounter(highest_used + PRODUCER_IDS_PASSED_OVER, max(highest_used, counter.raised_to))
    found = "is missing" if counter.end == NO_PRODUCER_ID else f"says {counter.end}"
    log.warning(
        "%s %s, but producer id %d is in use: the tree is older than the logs, or a client chose this id; the next ids"
        " begin at %d",
        paths.PRODUCER_ID_BLOCK,
        found,
        highest_used,
        raised.end + 1,
    )
    return raised


def _producer_id_counter(tree: MetadataStore) -> tuple[ProducerIdCounter, int | None]:
    """Return the counter and the version of its node, None if there is no node; one that cannot be read is missing."""
    path = paths.PRODUCER_ID_BLOCK
    if tree.exists(path) is None:
        return ProducerIdCounter(), None
    data, stat = tree.get(path)
    try:
        return decode_producer_id_counter(path, data), stat.version
    except DamagedNodeError as error:
        report_damaged(tree, [error], "writing a new producer id block to")
        return ProducerIdCounter(), stat.version


def _set_counter(tree: MetadataStore, version: int | None, data: bytes) -> None:
    if version is None:
        tree.create(paths.PRODUCER_ID_BLOCK, data)
    else:
        tree.set(paths.PRODUCER_ID_BLOCK, data, version)


def _contended(attempts: int) -> CoordinationError:
    path = paths.PRODUCER_ID_BLOCK
    return CoordinationError(f"{path}: others were faster {attempts} times; is a broker asking without end?")


# -- inside ------------------------------------------------------------------------------------------------


def _first_state(replicas: tuple[int, ...], live: Collection[int] | None) -> PartitionState:
    in_sync = replicas if live is None else tuple(each for each in replicas if each in live)
    return PartitionState(in_sync[0], 0, in_sync) if in_sync else PartitionState(NO_LEADER, 0, replicas)


def _multi_with_parents(tree: MetadataStore, operations: list[Operation]) -> None:
    """Do it; if the registry's own nodes are missing (nobody called `prepare`), create them first."""
    try:
        tree.multi(operations)
    except NoNodeError:
        ensure_paths(tree, [paths.TOPICS, paths.CHANGES, paths.TOPIC_CONFIGS])
        tree.multi(operations)


def _topic_info(
    tree: MetadataStore, name: str, assignment: TopicAssignment, nodes: Mapping[str, NodeData]
) -> TopicInfo | NodeError | None:
    """Return what was read of a topic; None if it is being made, or was deleted while it was read."""
    if not assignment.replicas:
        return None
    try:
        return _put_together(tree, name, assignment, nodes)
    except NoNodeError as error:
        before, now = nodes[paths.topic(name)].stat, tree.exists(paths.topic(name))
        is_as_it_was = now is not None and (now.created_at, now.version) == (before.created_at, before.version)
        return error if is_as_it_was else read_topic(tree, name)
    except NodeError as error:
        return error


def _put_together(
    tree: MetadataStore, name: str, assignment: TopicAssignment, nodes: Mapping[str, NodeData]
) -> TopicInfo:
    partitions = []
    for number, path in enumerate(_state_paths(name, assignment)):
        if path not in nodes:
            raise NoNodeError(path, f"topic {name!r} has lost the state of a partition")
        data, stat = nodes[path]
        replicas, adding, removing = assignment.replica_set(number)
        partitions.append(PartitionInfo(replicas, _state_of(tree, path, data), stat.version, adding, removing))
    config = paths.topic_config(name)
    settings = settings_in(tree, config, nodes[config].data) if config in nodes else {}
    stat = nodes[paths.topic(name)].stat
    unreadable = settings is None
    return TopicInfo(
        name, assignment.topic_id, tuple(partitions), settings or {}, stat.version, unreadable, stat.created_at
    )


def _state_of(tree: MetadataStore, path: str, data: bytes) -> PartitionState:
    """Return a partition's state; report one that cannot be understood, and return `UNREADABLE`."""
    try:
        return decode_partition_state(path, data)
    except DamagedNodeError as error:
        report_damaged(tree, [error], "ignoring the state in")
        return UNREADABLE
