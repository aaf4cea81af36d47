"""Errors that stop the mirroring of a topic or partition until an operator acts."""

from __future__ import annotations

from barnabas.errors import BarnabasError


class MirrorError(BarnabasError):
    """A mirror cannot continue until an operator removes the cause."""


class CircleError(MirrorError):
    """Mirroring would copy records back to the cluster that they come from. This is expected if two mirrors run in
    opposite directions."""


class DivergedError(MirrorError):
    """The target has records that differ from the records of the source. The partition stays stopped until an operator
    acts.

    The ledger keeps the reason, because either cluster may delete the records that prove it.
    """


class ForeignBatchError(DivergedError):
    """Another writer wrote to a partition that the mirror fills."""


class UnmirrorableBatchError(MirrorError):
    """A batch cannot be written to the target unchanged, for example because it belongs to a transaction."""
