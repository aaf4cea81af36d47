"""Features in Kafka's sense: levels of what the brokers of a cluster agree to do (KIP-584).

Two are known, at level 0 alone: groups have the classic protocol (`group.version` 1 brings KIP-848), and transactions
the first one (`transaction.version`), which is not served. Nothing can be upgraded.
"""

from __future__ import annotations

FEATURES = {"group.version": 0, "transaction.version": 0}
"""The greatest level of each feature; the least is 0."""
