"""The finalized features of a cluster and their levels (KIP-584).

Two features exist, and level 0 is their only level. `group.version` 0 is the classic group protocol; level 1 would be
KIP-848. `transaction.version` 0 is the first transaction protocol, which Barnabas does not serve. No feature can be
upgraded.
"""

from __future__ import annotations

FEATURES = {"group.version": 0, "transaction.version": 0}
"""The maximum level of each feature. The minimum level is 0."""
