"""Why a topic or a partition is not mirrored: errors that do not pass by themselves."""

from __future__ import annotations

from barnabas.errors import BarnabasError


class MirrorError(BarnabasError):
    """Something stands in the way of a mirror, and stays there until somebody does something about it."""


class CircleError(MirrorError):
    """Records would come back to where they were produced: no trouble where two mirrors face each other."""


class DivergedError(MirrorError):
    """The target has records that the source does not confirm: the partition stays stopped until an operator decides.

    The ledger keeps the reason, because the records that prove it may expire in either cluster.
    """


class ForeignBatchError(DivergedError):
    """Somebody else has written into a partition that a mirror fills."""


class UnmirrorableBatchError(MirrorError):
    """A batch that cannot be had in the target as it is in the source."""
