"""The cluster's metadata in the metadata store: brokers, topics, partition states, cluster id, producer ids.

The functions work on any `MetadataStore`. The nodes and their JSON are Kafka's (docs/explanation/coordination.md lists
them). A value that several brokers change is read with the version of its node and written with that version.
`BadVersionError` means that another broker has written first, and the caller must read the value again.
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
"""The number of producer ids that a broker allocates at a time, as in Kafka."""
PRODUCER_IDS_PASSED_OVER = 1_000_000
"""The number of producer ids to skip if the counter in the metadata store was lower than a producer id in use."""

STATES_AT_ONCE = 800
"""The maximum number of partition states in one `multi`; ZooKeeper accepts up to one megabyte."""

TOPICS_AT_ONCE = 100
"""The number of topics that are read together."""


_NONE: Mapping[int, LiveBroker] = {}
_NO_VERSIONS: Mapping[str, int] = {}

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """The replicas and the state of a partition.

    `version` is the version of the partition's state node, for a compare-and-set.

    :param adding: the replicas that an unfinished reassignment adds.
    :param removing: the replicas that an unfinished reassignment removes.
    """

    replicas: tuple[int, ...]
    state: PartitionState
    version: int
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def replica_set(self) -> ReplicaSet:
        """The replicas, including the replicas that an unfinished reassignment adds or removes."""
        return ReplicaSet(self.replicas, self.adding, self.removing)


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """The metadata of a topic. `partitions` are sorted by partition number.

    :param version: the version of the topic's node, which contains the replicas.
    :param has_unreadable_config: True if the node with the topic's configuration is damaged.
    """

    name: str
    topic_id: bytes
    partitions: tuple[PartitionInfo, ...]
    config: dict[str, str] = field(default_factory=dict)
    version: int = 0
    has_unreadable_config: bool = False
    created_at: int = field(default=0, compare=False)
    """The number of the change that created the topic's node (`Stat.created_at`); 0 if unknown."""


# -- brokers -----------------------------------------------------------------------------------------------


def prepare(tree: MetadataStore, new_cluster_id: str, known_cluster_id: str | None = None) -> str:
    """Create missing root nodes and return the cluster id.

    A new cluster id is durable before it is returned, because the caller then writes it to the data directory.

    :param new_cluster_id: the cluster id if the cluster has none.
    :param known_cluster_id: the cluster id in the broker's data directory. It replaces the cluster id if the node is
        damaged, or if the node is missing from a metadata store that has topics. It is not written to an empty metadata
        store, because the broker may be connected to the wrong store.
    :raises NewerFormatError: a newer release of Barnabas has written the nodes.
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
            report_damaged(tree, [error], "overwriting the cluster id in")
        new = known_cluster_id or new_cluster_id
        try:
            tree.set(paths.CLUSTER_ID, encode_cluster_id(new), stat.version)
            break
        except (BadVersionError, NoNodeError):
            continue  # Another broker has just written the cluster id.
    tree.flush()
    return new


def ensure_roots(tree: MetadataStore) -> None:
    """Create the root nodes that are missing, for example because another program deleted them."""
    ensure_paths(tree, [paths.BROKER_IDS, paths.TOPICS, paths.CHANGES, paths.TOPIC_CONFIGS, paths.CONSUMERS])
    ensure_paths(tree, [paths.REMOVED_REPLICAS])


def register_broker(tree: MetadataStore, broker: BrokerRegistration) -> int:
    """Register a broker in an ephemeral node and notify other brokers; return the broker epoch.

    If an earlier session with the same data directory has left a node, it is replaced. No other live broker can own
    that node, because this broker holds the lock of the data directory (KAFKA-7165). A second registration in the same
    session replaces the first.

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
    """Return whether a registration with this broker id exists."""
    return tree.exists(paths.broker(broker_id)) is not None


def is_as_registered(tree: MetadataStore, broker: BrokerRegistration) -> bool:
    """Return whether the registration of this session is unchanged. Return True if this session has no registration."""
    path = paths.broker(broker.id)
    try:
        data, stat = tree.get(path)
        found = decode_broker(path, data)
    except NoNodeError:
        return True
    except DamagedNodeError:
        return stat.owner != tree.session_id
    # A node has some fields of a registration only once, such as the address of the listener REPLICATION.
    written = decode_broker(path, encode_broker(broker))
    return stat.owner != tree.session_id or replace(found, timestamp_ms=written.timestamp_ms) == written


def read_broker_epochs(tree: MetadataStore, broker_ids: Iterable[int]) -> dict[int, int]:
    """Return the broker epochs by broker id. Brokers that are not alive are left out."""
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
    """Return the live brokers by id. The watch fires when a broker registers or its registration ends.

    A damaged registration is logged and skipped, unless it is in `known`.

    :param known: the brokers of the previous read.
    """
    brokers = {}
    damaged: list[NodeError] = []
    for name in tree.children(paths.BROKER_IDS, watch):
        path = f"{paths.BROKER_IDS}/{name}"
        try:
            data, stat = tree.get(path)
            registration = decode_broker(path, data)
        except NoNodeError:
            continue  # The registration of this broker has just ended.
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
    """Create a topic with its assignment, its configuration and the partition states in one step.

    A large topic is created in several steps and is visible after the last one (`large_topics`).

    :param replicas: the brokers that hold each partition. The first live broker becomes the leader.
    :param live: the live brokers; None if all brokers are live. Other brokers are not in the ISR.
    :raises NodeExistsError: a topic with this name exists.
    """
    ensure_paths(tree, [paths.DELETED_TOPIC_IDS])  # The parent node must exist for `guards` of later writes.
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
    """Create a topic in one step. Return False if the topic is too large, or if an unfinished topic has its name."""
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
    """Add partitions to a topic that has `from_count` partitions; return the new number of partitions.

    If the topic has another number of partitions, no partitions are added. So a call with an unknown outcome can be
    repeated.

    :param added: the replicas of each new partition.
    :param live: the live brokers; None if all brokers are live. Other brokers are not in the ISR.
    :param topic_id: the id of the topic to change; None for any topic with this name.
    :raises NoNodeError: the topic does not exist.
    :raises BadVersionError: another broker has changed the topic during this call.
    """
    path = paths.topic(name)
    data, stat = tree.get(path)
    found = decode_topic(path, data)
    count = len(found.replicas)
    if not count:
        raise NoNodeError(path, "the topic is being created or deleted")
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
    """Add partitions in one step.

    Return False if there are too many, or if partition nodes of an unfinished attempt exist.
    """
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
    """Delete a topic and its configuration in one step; return False if the topic does not exist.

    A large topic becomes invisible in one step, and its nodes are then deleted in several steps (`large_topics`).

    :param checks: further operations in the first step. For example, the result of `note_deletion` ensures that the
        deletion note is unchanged.
    :raises NodeError: one of the checks failed; nothing was deleted.
    """
    if is_large(tree, name):
        is_deleted = delete_in_steps(tree, name, checks)
    else:
        nodes = [paths.topic_config(name), paths.topic(name)]
        is_deleted = delete_all(tree, nodes, [notification_node(ChangeNotification(topics=(name,)))], checks)
    tree.flush()
    return is_deleted


def take_topic_back(tree: MetadataStore, made: TopicInfo) -> bool:
    """Delete a topic after its creation has failed on this broker.

    No other broker knows the topic, and this broker has no files of it.

    The deletion needs no deletion note, because a full disk may have no space for one. If another topic has the name by
    now, it is not deleted.

    :returns: False if another broker has changed or deleted the topic after its creation.
    """
    while True:
        guard = guards_by_notes(tree, {made.topic_id: made.name}).get(made.topic_id)
        is_there = check_topic(tree, made.topic_id, made.name)
        if guard is None or is_there is None or is_there.version != made.version:
            return False
        try:
            return delete_topic(tree, made.name, is_there, *guard)
        except (BadVersionError, NodeExistsError, NoNodeError):
            continue  # Another broker has just changed the topic or its deletion note.


def must_move_offsets(tree: MetadataStore) -> bool:
    """Return whether group offsets of an earlier release must be moved out of the metadata store.

    If not, record that they have been moved.
    """
    if tree.exists(paths.OFFSETS_MOVED) is not None:
        return False
    if tree.children(paths.CONSUMERS):
        return True
    note_offsets_moved(tree)
    return False


def note_offsets_moved(tree: MetadataStore) -> None:
    """Record durably that the offsets of groups are in `__consumer_offsets`."""
    ensure_paths(tree, [paths.OFFSETS_MOVED])
    tree.flush()


def read_topics(tree: MetadataStore, watch: Watch | None = None) -> dict[str, TopicInfo]:
    """Return all topics by name. The watch fires when a topic is created or deleted.

    :raises NodeError: a node of a topic is damaged.
    """
    topics = {}
    for name, topic in each_topic(tree, watch):
        if isinstance(topic, NodeError):
            raise topic
        topics[name] = topic
    return topics


def each_topic(tree: MetadataStore, watch: Watch | None = None) -> Iterator[tuple[str, TopicInfo | NodeError]]:
    """Yield the names and metadata of all topics.

    If a node of a topic is damaged, yield a `NodeError` instead of the metadata.

    The topics are read in batches, because there may be 10,000 partitions.
    """
    names = _topic_names(tree, tree.children(paths.TOPICS, watch))
    for start in range(0, len(names), TOPICS_AT_ONCE):
        yield from _read_topics(tree, names[start : start + TOPICS_AT_ONCE])


def _topic_names(tree: MetadataStore, parts: Iterable[str]) -> list[str]:
    """Return the node names that are valid topic names. Invalid names are logged and left out."""
    names = usable_names(tree, paths.TOPICS, parts)
    strange = [name for name in names if not is_topic_name(name)]
    report_damaged(tree, [DamagedNodeError(paths.topic(name), "not a valid topic name") for name in strange])
    return [name for name in names if is_topic_name(name)]


def read_topic(tree: MetadataStore, name: str) -> TopicInfo | None:
    """Return the metadata of a topic, or None if it does not exist.

    :raises NodeError: a node of the topic is damaged.
    """
    for _, topic in _read_topics(tree, [name]):
        if isinstance(topic, NodeError):
            raise topic
        return topic
    return None


def _read_topics(tree: MetadataStore, names: Sequence[str]) -> Iterator[tuple[str, TopicInfo | NodeError]]:
    """Yield the metadata of the given topics. Topics that do not exist are left out."""
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
    """Return the state of a partition and the version of its node. The watch fires when the state changes.

    :raises NoNodeError: the partition does not exist.
    """
    path = paths.partition_state(topic_partition)
    data, stat = tree.get(path, watch)
    return decode_partition_state(path, data), stat.version


def read_partition_states(tree: MetadataStore, wanted: Iterable[StateChange]) -> list[StateChange]:
    """Return the current states of the partitions in `wanted`. Partitions that no longer exist are left out.

    A damaged state is returned as `UNREADABLE`, so the other states can still be read.
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
    """Write many partition states in few steps.

    A state is written only if its node has the version `StateChange.version` - 1.

    The topics must have the given ids. So a new topic with the name of a deleted topic is not changed.

    :param topic_versions: the versions that the topics' nodes must have, for some of the topics. A leader that adds a
        broker to the ISR uses this check to ensure that the broker still has a replica.
    :returns: the states that were written. The caller must read the other states again, because their nodes have
        another version or no longer exist.
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
    """Write the states that other brokers have not changed, after a `multi` with all states has failed.

    The current versions are read first, because many states may have changed: after a broker has failed, several
    brokers become leaders of its partitions.
    """
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
    """Allocate a block of unique producer ids by compare-and-set (KIP-98).

    The allocation is durable when this function returns. Otherwise, an id could be allocated twice, and a broker would
    drop new records as duplicates.

    :param highest_used: the highest producer id that the broker knows to be in use. The ids in the block are higher.
    """
    for _ in range(attempts):
        try:
            counter, version = _producer_id_counter(tree)
            raised = _raised(counter, highest_used)
            start = raised.end + 1
            _set_counter(tree, version, encode_producer_id_block(broker_id, start, start + size - 1, raised.raised_to))
        except (BadVersionError, NodeExistsError, NoNodeError):
            continue  # Another broker has just allocated a block of producer ids.
        tree.flush()
        return range(start, start + size)
    raise _contended(attempts)


def raise_producer_ids(
    tree: MetadataStore, broker_id: int, highest_used: int, attempts: int = 100
) -> ProducerIdCounter:
    """Ensure that the counter of producer ids is at least `highest_used`; return the counter.

    If the counter is missing or lower, the metadata store is older than the logs.
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
    """Return a counter of producer ids that is at least `highest_used`.

    If the counter was lower, a million ids above `highest_used` are skipped, because higher ids may also be in use.
    """
    if highest_used <= counter.end:
        return counter
    raised = ProducerIdCounter(highest_used + PRODUCER_IDS_PASSED_OVER, max(highest_used, counter.raised_to))
    found = "is missing" if counter.end == NO_PRODUCER_ID else f"is {counter.end}"
    log.warning(
        "%s %s, but producer id %d is in use: the metadata store is older than the logs, or a client chose this id;"
        " the next allocated id is %d",
        paths.PRODUCER_ID_BLOCK,
        found,
        highest_used,
        raised.end + 1,
    )
    return raised


def _producer_id_counter(tree: MetadataStore) -> tuple[ProducerIdCounter, int | None]:
    """Return the counter of producer ids and the version of its node.

    The version is None if there is no node. A damaged node is treated as an empty counter.
    """
    path = paths.PRODUCER_ID_BLOCK
    if tree.exists(path) is None:
        return ProducerIdCounter(), None
    data, stat = tree.get(path)
    try:
        return decode_producer_id_counter(path, data), stat.version
    except DamagedNodeError as error:
        report_damaged(tree, [error], "overwriting the producer id block in")
        return ProducerIdCounter(), stat.version


def _set_counter(tree: MetadataStore, version: int | None, data: bytes) -> None:
    if version is None:
        tree.create(paths.PRODUCER_ID_BLOCK, data)
    else:
        tree.set(paths.PRODUCER_ID_BLOCK, data, version)


def _contended(attempts: int) -> CoordinationError:
    path = paths.PRODUCER_ID_BLOCK
    return CoordinationError(f"{path}: another broker was faster {attempts} times; check for one that never stops")


# -- inside ------------------------------------------------------------------------------------------------


def _first_state(replicas: tuple[int, ...], live: Collection[int] | None) -> PartitionState:
    in_sync = replicas if live is None else tuple(each for each in replicas if each in live)
    return PartitionState(in_sync[0], 0, in_sync) if in_sync else PartitionState(NO_LEADER, 0, replicas)


def _multi_with_parents(tree: MetadataStore, operations: list[Operation]) -> None:
    """Apply the operations. If root nodes are missing because `prepare` was not called, create them first."""
    try:
        tree.multi(operations)
    except NoNodeError:
        ensure_paths(tree, [paths.TOPICS, paths.CHANGES, paths.TOPIC_CONFIGS])
        tree.multi(operations)


def _topic_info(
    tree: MetadataStore, name: str, assignment: TopicAssignment, nodes: Mapping[str, NodeData]
) -> TopicInfo | NodeError | None:
    """Return the metadata of a topic from its nodes.

    Return None if the topic is being created or has just been deleted.
    """
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
            raise NoNodeError(path, f"topic {name!r} has lost a partition state")
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
    """Return the partition state in a node. If the node is damaged, log this and return `UNREADABLE`."""
    try:
        return decode_partition_state(path, data)
    except DamagedNodeError as error:
        report_damaged(tree, [error], "ignoring the state in")
        return UNREADABLE
