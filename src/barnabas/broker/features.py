"""The feature levels of a cluster, as Kafka defines features (KIP-584).

Two features exist, both at level 0 only. `group.version` 0 is the classic group protocol; level 1 would be KIP-848.
`transaction.version` 0 is the first transaction protocol, which Barnabas does not serve. No upgrade is possible.
"""

from __future__ import annotations

FEATURES = {"group.version": 0, "transaction.version": 0}
"""The maximum level of each feature; the minimum is 0."""
