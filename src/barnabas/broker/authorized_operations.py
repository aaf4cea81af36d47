"""The operations that a client may perform: all, because Barnabas has no authorization yet (KIP-430).

Kafka's brokers without an authorizer respond in the same way. Each constant has one bit for each operation of a kind of
resource; the position of the bit is the operation's number in the protocol.
"""

from __future__ import annotations

READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, CLUSTER_ACTION = range(3, 10)
DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE = range(10, 13)


def _bits(*operations: int) -> int:
    return sum(1 << operation for operation in operations)


ON_TOPICS = _bits(READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS)
ON_GROUPS = _bits(READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS)
ON_CLUSTER = _bits(CREATE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE)
