"""A replica cluster that is fed by an embedded consumer (paper, section 4): topics of one cluster, followed in another.

Batches travel as they are. What a mirrored batch came from stands in its own header (`identity.py`), so the target's
log is the ledger of its partition: whoever reads its last batch knows where to go on. docs/how-to/mirror.md has the
proof.
"""
