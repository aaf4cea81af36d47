"""The paths of the nodes in the metadata store, as in Kafka 0.8 and later ZooKeeper-based releases.

Group and consumer names may contain any character, so they are percent-encoded as one part of a path. Topic names are
encoded in the same way, but none of their characters needs it. No other module builds these paths.
"""

from __future__ import annotations

import re

from barnabas.coordination.fields import INT32_MAX, BadValueError, DamagedNodeError, shown, whole_number
from barnabas.coordination.metadata_store import InvalidPathError, check_path
from barnabas.model import TopicPartition
from barnabas.security.acls import WILDCARD, PatternType, ResourcePattern, ResourceType  # noqa: F401 - for the example

BROKERS = "/brokers"
BROKER_IDS = "/brokers/ids"
TOPICS = "/brokers/topics"
CHANGES = "/brokers/changes"
CHANGE = "/brokers/changes/c-"
"""The path of a new change notification, to which the metadata store appends a number."""
LIVES = "/brokers/lives"
"""The parent of the life counters: one node for each log directory."""
CONFIGS = "/config"
TOPIC_CONFIGS = "/config/topics"
BROKER_CONFIGS = "/config/brokers"
GROUP_CONFIGS = "/config/groups"
USER_CONFIGS = "/config/users"
CLIENT_CONFIGS = "/config/clients"
IP_CONFIGS = "/config/ips"
DEFAULT = "<default>"
"""The name of the node for all brokers, users, client ids or addresses that have no node of their own."""
ACLS = "/kafka-acl"
"""The ACLs of literal resource names."""
EXTENDED_ACLS = "/kafka-acl-extended"
"""The ACLs of other resource patterns."""
ACL_CHANGES = "/kafka-acl-changes"
"""The paths of the last changed nodes of ACLs."""
CONSUMERS = "/consumers"
CLUSTER = "/cluster"
CLUSTER_ID = "/cluster/id"
PRODUCER_ID_BLOCK = "/latest_producer_id_block"
ADMIN = "/admin"
DELETED_TOPIC_IDS = "/admin/deleted_topic_ids"
REMOVED_REPLICAS = "/admin/removed_replicas"
OFFSETS_MOVED = "/admin/offsets_in_log"
"""The node that exists once the offsets of groups with a coordinator are in `__consumer_offsets`."""
DECOY_SECRET = "/admin/scram_decoy_secret"
"""The secret from which brokers derive the salts of unknown users."""
USERS_IMPORTED = "/admin/bootstrap_users_imported"
"""The node that exists once a broker has imported the first users."""
BROKER_ROOTS = (BROKERS, CONFIGS, CLUSTER, PRODUCER_ID_BLOCK, ADMIN, ACLS, EXTENDED_ACLS, ACL_CHANGES)
"""The nodes below which only brokers change nodes. All other nodes belong to consumers."""

_SAFE = re.compile(r"[A-Za-z0-9._~-]+")
_UNSAFE = re.compile(rb"[^A-Za-z0-9._~-]")
_ENCODED = re.compile(rb"%([0-9A-F]{2})")
_EMPTY = "%"
"""The encoding of the empty name, because a part of a path cannot be empty. No other name is encoded as `%`."""


def encode_name(name: str) -> str:
    """Return `name` as one part of a path.

    >>> encode_name("clicks-1"), encode_name("a/b"), encode_name("."), encode_name("")
    ('clicks-1', 'a%2Fb', '%2E', '%')
    """
    if name in (".", ".."):
        return name.replace(".", "%2E")
    if _SAFE.fullmatch(name):
        return name
    if not name:
        return _EMPTY
    return _UNSAFE.sub(lambda match: b"%%%02X" % match[0][0], name.encode("utf-8", "surrogatepass")).decode()


def decode_name(part: str) -> str:
    """Return the name that `encode_name` has encoded.

    >>> decode_name("a%2Fb")
    'a/b'

    :raises DamagedNodeError: `encode_name` never returns `part`; another program created the node.
    """
    if _SAFE.fullmatch(part):
        return part
    try:
        name = _ENCODED.sub(lambda match: bytes([int(match[1], 16)]), part.encode()).decode("utf-8", "surrogatepass")
    except UnicodeError:
        name = part
    if part == _EMPTY:
        return ""
    if encode_name(name) != part:
        raise DamagedNodeError(shown(part), "brokers and consumers never write this node name")
    return name


def deleted_topic_id(topic_id: bytes) -> str:
    """`/admin/deleted_topic_ids/0001...0f`: the deletion note of a topic whose files or offsets may still exist."""
    return f"{DELETED_TOPIC_IDS}/{topic_id.hex()}"


def removed_replica(topic_id: bytes, partition: int, broker_id: int) -> str:
    """`/admin/removed_replicas/0001...0f-0-1`: the removal node of a replica: topic id, partition and broker."""
    return f"{REMOVED_REPLICAS}/{topic_id.hex()}-{partition}-{broker_id}"


def broker(broker_id: int) -> str:
    """`/brokers/ids/1`: the registration of a live broker; ephemeral."""
    return f"{BROKER_IDS}/{broker_id}"


def life(directory_id: str) -> str:
    """`/brokers/lives/-nvZo4_1TwyhrrQ-IqimrA`: the life counter of the log directory with this id."""
    return f"{LIVES}/{encode_name(directory_id)}"


def topic(name: str) -> str:
    """`/brokers/topics/clicks`: the topic's id and replicas."""
    return f"{TOPICS}/{encode_name(name)}"


def topic_partitions(name: str) -> str:
    """`/brokers/topics/clicks/partitions`: the parent of the partition nodes."""
    return f"{topic(name)}/partitions"


def partition(topic_partition: TopicPartition) -> str:
    """`/brokers/topics/clicks/partitions/0`: an empty node, the parent of the partition state."""
    return f"{topic_partitions(topic_partition.topic)}/{topic_partition.partition}"


def partition_state(topic_partition: TopicPartition) -> str:
    """`/brokers/topics/clicks/partitions/0/state`: leader, leader epoch and in-sync replicas."""
    return f"{partition(topic_partition)}/state"


def topic_config(name: str) -> str:
    """`/config/topics/clicks`: the configuration of a topic."""
    return f"{TOPIC_CONFIGS}/{encode_name(name)}"


def broker_config(name: str) -> str:
    """`/config/brokers/0`: the configuration of a broker.

    An empty name stands for the configuration of all brokers, in `/config/brokers/<default>`.
    """
    return f"{BROKER_CONFIGS}/{encode_name(name) if name else DEFAULT}"


def group_config(group_id: str) -> str:
    """`/config/groups/ctr`: the configuration of a group."""
    return f"{GROUP_CONFIGS}/{encode_name(group_id)}"


def user_config(user: str | None) -> str:
    """`/config/users/alice`: the SCRAM credentials and the quotas of a user; None for the quotas of all users."""
    return f"{USER_CONFIGS}/{_encode_or_default(user)}"


def clients_of_user(user: str | None) -> str:
    """`/config/users/alice/clients`: the parent of the nodes with quotas of a user's client ids."""
    return f"{user_config(user)}/clients"


def client_of_user_config(user: str | None, client_id: str | None) -> str:
    """`/config/users/alice/clients/app`: the quotas of a user's client id; None for all of them."""
    return f"{clients_of_user(user)}/{_encode_or_default(client_id)}"


def client_config(client_id: str | None) -> str:
    """`/config/clients/app`: the quotas of a client id; None for all client ids."""
    return f"{CLIENT_CONFIGS}/{_encode_or_default(client_id)}"


def ip_config(address: str | None) -> str:
    """`/config/ips/10.0.0.1`: the quotas of an address; None for all addresses."""
    return f"{IP_CONFIGS}/{_encode_or_default(address)}"


def _encode_or_default(name: str | None) -> str:
    return DEFAULT if name is None else encode_name(name)


def acl_root(pattern_type: PatternType) -> str:
    """`/kafka-acl`, or `/kafka-acl-extended/prefixed`: the parent of the types of resources."""
    return ACLS if pattern_type is PatternType.LITERAL else f"{EXTENDED_ACLS}/{pattern_type.name.lower()}"


def acl(pattern: ResourcePattern) -> str:
    """`/kafka-acl/Topic/clicks`: the ACLs of a resource pattern. As in Kafka, the name of all resources is `*`."""
    name = pattern.name if pattern.name == WILDCARD else encode_name(pattern.name)
    return f"{acl_root(pattern.pattern_type)}/{pattern.type.label}/{name}"


def acl_nodes(pattern: ResourcePattern) -> list[str]:
    """Return the paths of the nodes that may contain the ACLs of a resource pattern. `acl` is the first one.

    >>> acl_nodes(ResourcePattern(ResourceType.GROUP, "my group"))
    ['/kafka-acl/Group/my%20group', '/kafka-acl/Group/my group']
    """
    first, name = acl(pattern), pattern.name
    folder = first.rpartition("/")[0]
    parts = (each for each in (encode_name(name), name) if _is_part(each) and decode_resource(each) == name)
    return list(dict.fromkeys([first, *(f"{folder}/{each}" for each in parts)]))


def _is_part(name: str) -> bool:
    try:
        check_path(f"/{name}")
    except InvalidPathError:
        return False
    return bool(name) and "/" not in name


def decode_resource(part: str) -> str:
    """Return the resource name of a node below `acl_root`. Kafka does not encode names.

    >>> decode_resource("a%2Fb"), decode_resource("*"), decode_resource("my group")
    ('a/b', '*', 'my group')
    """
    try:
        return part if part == WILDCARD else decode_name(part)
    except DamagedNodeError:
        return part


def is_secret(path: str) -> bool:
    """Return whether only brokers may read a node, because it or another node of its user contains a secret.

    >>> is_secret("/config/users/alice"), is_secret("/config/users"), is_secret(DECOY_SECRET)
    (True, False, True)
    """
    return path == DECOY_SECRET or path.startswith(f"{USER_CONFIGS}/")


def group(group_id: str) -> str:
    """`/consumers/ctr`: the parent of all nodes of a group."""
    return f"{CONSUMERS}/{encode_name(group_id)}"


def group_members(group_id: str) -> str:
    """`/consumers/ctr/ids`: the parent of the consumers' ephemeral nodes, in a group without a group coordinator."""
    return f"{group(group_id)}/ids"


def group_member(group_id: str, consumer_id: str) -> str:
    """`/consumers/ctr/ids/<consumer>`: the subscription of a consumer; ephemeral."""
    return f"{group_members(group_id)}/{encode_name(consumer_id)}"


def group_owners(group_id: str) -> str:
    """`/consumers/ctr/owners`: the parent of the topics' nodes, which are the parents of the owners' nodes."""
    return f"{group(group_id)}/owners"


def group_owner(group_id: str, topic_partition: TopicPartition) -> str:
    """`/consumers/ctr/owners/clicks/0`: the consumer that owns the partition; ephemeral."""
    name, number = topic_partition
    return f"{group_owners(group_id)}/{encode_name(name)}/{number}"


def group_offsets(group_id: str) -> str:
    """`/consumers/ctr/offsets`: the parent of the topics' nodes, which are the parents of the committed offsets."""
    return f"{group(group_id)}/offsets"


def group_offset(group_id: str, topic_partition: TopicPartition) -> str:
    """`/consumers/ctr/offsets/clicks/0`: the committed offset of a partition."""
    name, number = topic_partition
    return f"{group_offsets(group_id)}/{encode_name(name)}/{number}"


def partition_of_offset(path: str) -> TopicPartition:
    """Return the partition of a path from `group_offset` or `group_owner`.

    :raises DamagedNodeError: neither function returns this path.
    """
    name, number = path.rsplit("/", 2)[1:]
    try:
        return TopicPartition(decode_name(name), whole_number(number, 0, INT32_MAX))
    except BadValueError as error:
        raise DamagedNodeError(path, str(error)) from error
