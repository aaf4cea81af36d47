"""The cluster's registry: brokers, topics, partition states, configurations, the cluster's id, producer ids.

Typed functions over any `Tree`; the nodes and their JSON are Kafka's (docs/coordination.md lists them). Values that
several brokers change are read together with the version of their node, and written back with it: a
`BadVersionError` then means that another broker was faster, and that the caller has to read again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from barnabas.coordination import paths
from barnabas.coordination.subtrees import delete_all, ensure_paths
from barnabas.coordination.tree import (
    ANY_VERSION,
    BadVersionError,
    Create,
    NodeError,
    NodeExistsError,
    NoNodeError,
    Operation,
    Set,
    Tree,
    Watch,
)
from barnabas.coordination.values import (
    BrokerRegistration,
    PartitionState,
    TopicAssignment,
    decode_broker,
    decode_cluster_id,
    decode_config,
    decode_partition_state,
    decode_producer_id_block_end,
    decode_topic,
    encode_broker,
    encode_cluster_id,
    encode_config,
    encode_partition_state,
    encode_producer_id_block,
    encode_topic,
)
from barnabas.errors import CoordinationError
from barnabas.model import TopicPartition

PRODUCER_ID_BLOCK_SIZE = 1_000
"""How many producer ids a broker takes at a time, as in Kafka."""

STATES_AT_ONCE = 1_000
"""Partition states that are changed in one step; ZooKeeper takes up to a megabyte."""


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """A partition's replicas and its state; `version` is what a compare-and-set of the state must name."""

    replicas: tuple[int, ...]
    state: PartitionState
    version: int


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """All that the tree knows of a topic; `partitions` by partition number."""

    name: str
    topic_id: bytes
    partitions: tuple[PartitionInfo, ...]
    config: dict[str, str] = field(default_factory=dict)


# -- the cluster and its brokers ---------------------------------------------------------------------------


def prepare(tree: Tree, new_cluster_id: str) -> str:
    """Create the nodes under which all else stands, if they are missing, and return the cluster's id.

    A new id survives a loss of power before it is returned: the logs' folder bears it from then on.

    :param new_cluster_id: becomes the cluster's id if it has none yet.
    """
    ensure_paths(tree, [paths.BROKER_IDS, paths.TOPICS, paths.TOPIC_CONFIGS, paths.CONSUMERS])
    try:
        tree.create(paths.CLUSTER_ID, encode_cluster_id(new_cluster_id), make_parents=True)
    except NodeExistsError:
        return decode_cluster_id(paths.CLUSTER_ID, tree.get(paths.CLUSTER_ID).data)
    tree.flush()
    return new_cluster_id


def register_broker(tree: Tree, broker: BrokerRegistration) -> None:
    """Tell the others that this broker is alive, for as long as the tree's session lives.

    :raises NodeExistsError: another broker with this id is alive.
    """
    path = paths.broker(broker.id)
    found = tree.exists(path)
    if found is not None and found.owner == tree.session_id:
        tree.set(path, encode_broker(broker))
    else:
        tree.create(path, encode_broker(broker), ephemeral=True)


def read_brokers(tree: Tree, watch: Watch | None = None) -> dict[int, BrokerRegistration]:
    """Return the brokers that are alive, by id. The watch fires when one comes or goes."""
    brokers = {}
    for name in tree.children(paths.BROKER_IDS, watch):
        path = f"{paths.BROKER_IDS}/{name}"
        try:
            brokers[int(name)] = decode_broker(path, tree.get(path).data)
        except NoNodeError:
            continue  # it has just gone
    return dict(sorted(brokers.items()))


# -- topics ------------------------------------------------------------------------------------------------


def create_topic(
    tree: Tree,
    name: str,
    topic_id: bytes,
    replicas: Sequence[Sequence[int]],
    config: Mapping[str, str] | None = None,
) -> TopicInfo:
    """Create a topic in one step: assignment, configuration, and a state for each partition.

    :param replicas: for each partition the brokers that hold it; the first one leads.
    :raises NodeExistsError: there is a topic of this name.
    """
    assignment = TopicAssignment(bytes(topic_id), tuple(tuple(each) for each in replicas))
    operations: list[Operation] = [
        Create(paths.topic(name), encode_topic(assignment)),
        Create(paths.topic_partitions(name)),
    ]
    if config:
        operations.append(Create(paths.topic_config(name), encode_config(config)))
    partitions = []
    for number, each in enumerate(assignment.replicas):
        state = PartitionState(leader=each[0], leader_epoch=0, isr=each)
        operations += _new_partition(TopicPartition(name, number), state)
        partitions.append(PartitionInfo(each, state, 0))
    _multi_with_parents(tree, operations)
    tree.flush()
    return TopicInfo(name, assignment.topic_id, tuple(partitions), dict(config or {}))


def grow_topic(tree: Tree, name: str, partition_count: int, replicas: Sequence[int]) -> int:
    """Give a topic at least so many partitions, in one step; return how many it has now.

    Does nothing where it has as many already, so it can be repeated if its outcome is not known.

    :param replicas: of each new partition.
    :raises NoNodeError: there is no such topic.
    :raises BadVersionError: somebody else changed the topic meanwhile.
    """
    path = paths.topic(name)
    data, stat = tree.get(path)
    found = decode_topic(path, data)
    count = len(found.replicas)
    if count < partition_count:
        wanted = TopicAssignment(found.topic_id, found.replicas + (tuple(replicas),) * (partition_count - count))
        state = PartitionState(leader=replicas[0], leader_epoch=0, isr=tuple(replicas))
        operations: list[Operation] = [Set(path, encode_topic(wanted), stat.version)]
        for number in range(count, partition_count):
            operations += _new_partition(TopicPartition(name, number), state)
        tree.multi(operations)
    tree.flush()
    return max(count, partition_count)


def delete_topic(tree: Tree, name: str) -> bool:
    """Delete a topic and its configuration in one step; False if there is none of this name."""
    is_deleted = delete_all(tree, [paths.topic(name), paths.topic_config(name)])
    tree.flush()
    return is_deleted


def note_deletion(tree: Tree, topic_id: bytes, name: str) -> None:
    """Note, before a topic is deleted, that its files and offsets may be removed; durable with the deletion."""
    with suppress(NodeExistsError):  # an earlier attempt has noted it
        tree.create(paths.deleted_topic_id(topic_id), name.encode(), make_parents=True)


def end_deletion(tree: Tree, topic_id: bytes) -> None:
    """Forget that a topic was deleted: nothing is left of it."""
    delete_all(tree, [paths.deleted_topic_id(topic_id)])


def read_deletions(tree: Tree) -> set[bytes]:
    """Return the ids of the topics whose deletion was noted and has not ended."""
    try:
        return {bytes.fromhex(name) for name in tree.children(paths.DELETED_TOPIC_IDS)}
    except NoNodeError:
        return set()


def read_deleted_names(tree: Tree) -> set[str]:
    """Return the names of topics whose deletion has not ended, except where there is a new topic of that name.

    Notes of earlier releases say no name.
    """
    noted = {node.data.decode() for node in tree.subtree(paths.DELETED_TOPIC_IDS).values()} - {""}
    return {name for name in noted if tree.exists(paths.topic(name)) is None}


def must_move_offsets(tree: Tree) -> bool:
    """Whether an earlier release left the offsets of groups in the tree. If it did not, that is noted."""
    if tree.exists(paths.OFFSETS_MOVED) is not None:
        return False
    if tree.children(paths.CONSUMERS):
        return True
    note_offsets_moved(tree)
    return False


def note_offsets_moved(tree: Tree) -> None:
    """Note durably that they are in the log now."""
    ensure_paths(tree, [paths.OFFSETS_MOVED])
    tree.flush()


def read_topics(tree: Tree, watch: Watch | None = None) -> dict[str, TopicInfo]:
    """Return all topics by name. The watch fires when a topic is created or deleted.

    :raises NodeError: what the nodes of a topic say cannot be understood.
    """
    topics = {}
    for name, topic in each_topic(tree, watch):
        if isinstance(topic, NodeError):
            raise topic
        topics[name] = topic
    return topics


def each_topic(tree: Tree, watch: Watch | None = None) -> Iterator[tuple[str, TopicInfo | NodeError]]:
    """Yield the names of all topics and what the tree knows of each; or, of a topic whose nodes cannot be understood,
    why not. One at a time: there may be ten thousand partitions."""
    for name in map(paths.decode_name, tree.children(paths.TOPICS, watch)):
        try:
            topic = read_topic(tree, name)
        except NodeError as error:
            yield name, error
        else:
            if topic is not None:
                yield name, topic


def read_topic(tree: Tree, name: str) -> TopicInfo | None:
    """Return one topic, or None if there is none of this name.

    :raises NodeError: what its nodes say cannot be understood.
    """
    path = paths.topic(name)
    try:
        data, stat = tree.get(path)
    except NoNodeError:
        return None
    nodes = {below: (node.data, node.stat.version) for below, node in tree.subtree(path).items()}
    nodes[path] = (data, stat.version)
    return _topic_info(name, nodes, read_topic_config(tree, name))


def read_topic_config(tree: Tree, name: str) -> dict[str, str]:
    """Return what is configured for a topic, beside the broker's defaults."""
    return _read_config(tree, paths.topic_config(name))


def write_topic_config(tree: Tree, name: str, config: Mapping[str, str]) -> None:
    """Replace what is configured for a topic."""
    _write_config(tree, paths.topic_config(name), config)


# -- configurations of brokers and groups ------------------------------------------------------------------


def read_broker_config(tree: Tree, name: str) -> dict[str, str]:
    """Return what is configured for a broker, beside its file and flags; for all brokers, where the name is empty."""
    return _read_config(tree, paths.broker_config(name))


def write_broker_config(tree: Tree, name: str, config: Mapping[str, str]) -> None:
    """Replace what is configured for a broker, or for all."""
    _write_config(tree, paths.broker_config(name), config)


def read_group_configs(tree: Tree) -> dict[str, dict[str, str]]:
    """Return what is configured for groups, by group."""
    try:
        names = tree.children(paths.GROUP_CONFIGS)
    except NoNodeError:
        return {}
    return {name: _read_config(tree, paths.group_config(name)) for name in map(paths.decode_name, names)}


def write_group_config(tree: Tree, group_id: str, config: Mapping[str, str]) -> None:
    """Replace what is configured for a group; of one without settings nothing is kept."""
    if config:
        _write_config(tree, paths.group_config(group_id), config)
    else:
        delete_all(tree, [paths.group_config(group_id)])
        tree.flush()


def _read_config(tree: Tree, path: str) -> dict[str, str]:
    try:
        return decode_config(path, tree.get(path).data)
    except NoNodeError:
        return {}


def _write_config(tree: Tree, path: str, config: Mapping[str, str]) -> None:
    data = encode_config(config)
    try:
        tree.set(path, data)
    except NoNodeError:
        tree.create(path, data, make_parents=True)
    tree.flush()


# -- partition states --------------------------------------------------------------------------------------


def read_partition_state(
    tree: Tree, topic_partition: TopicPartition, watch: Watch | None = None
) -> tuple[PartitionState, int]:
    """Return a partition's state and its node's version. The watch fires when it changes.

    :raises NoNodeError: there is no such partition.
    """
    path = paths.partition_state(topic_partition)
    data, stat = tree.get(path, watch)
    return decode_partition_state(path, data), stat.version


def write_partition_state(
    tree: Tree, topic_partition: TopicPartition, state: PartitionState, version: int = ANY_VERSION
) -> int:
    """Change a partition's state if its node still has `version`; return the new version.

    :raises BadVersionError: another broker was faster.
    """
    stat = tree.set(paths.partition_state(topic_partition), encode_partition_state(state), version)
    return stat.version


def write_partition_states(tree: Tree, changes: Sequence[tuple[TopicPartition, PartitionState, int]]) -> None:
    """Change the states of many partitions whose nodes still have the versions named, many in one step.

    :raises BadVersionError: another broker was faster with one of them; some may have been changed.
    """
    for start in range(0, len(changes), STATES_AT_ONCE):
        tree.multi(
            [
                Set(paths.partition_state(where), encode_partition_state(state), version)
                for where, state, version in changes[start : start + STATES_AT_ONCE]
            ]
        )


# -- producer ids ------------------------------------------------------------------------------------------


def take_producer_ids(tree: Tree, broker_id: int, size: int = PRODUCER_ID_BLOCK_SIZE, attempts: int = 100) -> range:
    """Take a block of producer ids that nobody else ever gets, by compare-and-set (KIP-98).

    It survives a loss of power before it is returned: an id that is given out twice would make a broker take
    new records for duplicates, and drop them.
    """
    path = paths.PRODUCER_ID_BLOCK
    for _ in range(attempts):
        try:
            if tree.exists(path) is None:
                start = 0
                tree.create(path, encode_producer_id_block(broker_id, 0, size - 1))
            else:
                data, stat = tree.get(path)
                start = decode_producer_id_block_end(path, data) + 1
                tree.set(path, encode_producer_id_block(broker_id, start, start + size - 1), stat.version)
        except (BadVersionError, NodeExistsError, NoNodeError):
            continue  # another broker took a block in between
        tree.flush()
        return range(start, start + size)
    raise CoordinationError(f"{path}: others were faster {attempts} times; is a broker asking without end?")


# -- inside ------------------------------------------------------------------------------------------------


def _new_partition(topic_partition: TopicPartition, state: PartitionState) -> list[Operation]:
    return [
        Create(paths.partition(topic_partition)),
        Create(paths.partition_state(topic_partition), encode_partition_state(state)),
    ]


def _multi_with_parents(tree: Tree, operations: list[Operation]) -> None:
    """Do it; if the registry's own nodes are missing (nobody called `prepare`), create them first."""
    try:
        tree.multi(operations)
    except NoNodeError:
        ensure_paths(tree, [paths.TOPICS, paths.TOPIC_CONFIGS])
        tree.multi(operations)


def _topic_info(name: str, nodes: Mapping[str, tuple[bytes, int]], config: dict[str, str]) -> TopicInfo:
    path = paths.topic(name)
    assignment = decode_topic(path, nodes[path][0])
    partitions = []
    for number, replicas in enumerate(assignment.replicas):
        state_path = paths.partition_state(TopicPartition(name, number))
        if state_path not in nodes:
            raise NoNodeError(state_path, f"topic {name!r} has lost the state of a partition")
        data, version = nodes[state_path]
        partitions.append(PartitionInfo(replicas, decode_partition_state(state_path, data), version))
    return TopicInfo(name, assignment.topic_id, tuple(partitions), config)
