"""All operations on topics, groups and the cluster, as bits (KIP-430).

The position of a bit is the operation's number in the protocol. The handlers return all operations, as a Kafka broker
without an authorizer does. With ACLs, the stage of authorization keeps the operations that the client may perform.
"""

from __future__ import annotations

from barnabas.security.acls import OPERATIONS_ON, ResourceType


def _all_on(kind: ResourceType) -> int:
    return sum(1 << operation for operation in OPERATIONS_ON[kind])


ON_TOPICS = _all_on(ResourceType.TOPIC)
ON_GROUPS = _all_on(ResourceType.GROUP)
ON_CLUSTER = _all_on(ResourceType.CLUSTER)
