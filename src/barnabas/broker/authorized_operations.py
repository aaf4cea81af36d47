"""What a client may do: everything, since there is no authorisation (KIP-430).

Kafka's brokers answer so too where they have no authoriser. A bit for each operation that a kind of resource knows,
by the operation's number in the protocol.
"""

from __future__ import annotations

READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, CLUSTER_ACTION = range(3, 10)
DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE = range(10, 13)


def _bits(*operations: int) -> int:
    return sum(1 << operation for operation in operations)


ON_TOPICS = _bits(READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS)
ON_GROUPS = _bits(READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS)
ON_CLUSTER = _bits(CREATE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE)
