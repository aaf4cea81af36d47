"""Decides about claims on target topics, so that each topic has only one writer and no records are mirrored in circles.
No I/O.

A circle exists if a topic is mirrored to the topic that it is mirrored from. The ledger of each cluster records which
topics a mirror fills, and the clusters that their records passed through. So the mirror can refuse a topic whose
records passed through the target without reading any batch.

Two mirrors in opposite directions may start at the same time. Each mirror first writes its claim and then reads the
ledger of its source. So at least one mirror sees the claim of the other mirror and withdraws its own claim.
"""

from __future__ import annotations

from dataclasses import dataclass

from barnabas.mirror.ledger import Claim


@dataclass(frozen=True, slots=True)
class Refused:
    """The topic must not be mirrored. `reason` includes the remedy."""

    reason: str
    is_circle: bool = False


@dataclass(frozen=True, slots=True)
class Create:
    """The target topic does not exist: create it, then check again."""


@dataclass(frozen=True, slots=True)
class WriteClaim:
    """The claim is missing or outdated: write it, then check again."""

    claim: Claim


@dataclass(frozen=True, slots=True)
class Proceed:
    """The topic is ready for mirroring."""


Decision = Refused | Create | WriteClaim | Proceed


@dataclass(frozen=True, slots=True)
class ClaimCheck:
    """The state of a topic in both clusters.

    :param target_topic_id: topic id in the target; None if the topic does not exist there.
    :param target_is_empty: True if the target topic has no records.
    :param claim: the claim on the target topic in the target's ledger. A claim with another topic id is ignored.
    :param upstream: the claim on the source topic in the source's ledger. A claim with another topic id is ignored.
    """

    topic: str
    source_cluster: str
    target_cluster: str
    source_topic_id: str
    target_topic: str
    target_topic_id: str | None
    target_is_empty: bool
    claim: Claim | None
    upstream: Claim | None

    @property
    def _upstream(self) -> Claim | None:
        return self.upstream if self.upstream and self.upstream.target_topic_id == self.source_topic_id else None

    @property
    def _claim(self) -> Claim | None:
        return self.claim if self.claim and self.claim.target_topic_id == self.target_topic_id else None

    @property
    def path(self) -> tuple[str, ...]:
        """The ids of the clusters that the records have passed through on their way to the target."""
        return (*(self._upstream.path if self._upstream else ()), self.source_cluster)

    @property
    def is_circular(self) -> bool:
        """True if the records have passed through the target before."""
        return self.target_cluster in self.path

    def decide(self) -> Decision:
        """Return the next step for the topic."""
        if self.is_circular:
            way = " -> ".join((*self.path, self.target_cluster))
            return Refused(f"topic {self.topic!r}: its records came from the target itself ({way})", is_circle=True)
        if self.target_topic_id is None:
            return Create()
        claim = self._claim
        refused = self._refused(claim)
        if refused is not None:
            return refused
        if claim is not None and claim.path == self.path:
            return Proceed()
        return WriteClaim(Claim(self.source_cluster, self.topic, self.source_topic_id, self.target_topic_id, self.path))

    def _refused(self, claim: Claim | None) -> Refused | None:
        """Return a refusal if another mirror or another writer has filled the target's topic."""
        if claim is None:
            if self.target_is_empty:
                return None
            return Refused(
                f"topic {self.target_topic!r} of the target has records that no mirror wrote;"
                " delete the topic in the target, or mirror under another name (--prefix)"
            )
        if (claim.source_cluster, claim.source_topic) != (self.source_cluster, self.topic):
            return Refused(
                f"topic {self.target_topic!r} of the target is the mirror of {claim.source_topic!r} in cluster"
                f" {claim.source_cluster}; mirror under another name (--prefix)"
            )
        if claim.source_topic_id != self.source_topic_id:
            return Refused(
                f"topic {self.topic!r} was deleted and created again in the source; the target still has the records of"
                " the deleted topic: delete the topic in the target to mirror the new one"
            )
        return None
