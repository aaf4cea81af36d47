"""Claims on target topics: each has one writer, and no topic is mirrored in a circle. Pure.

Records circle where a topic is filled from one that was filled from it. No batch has to be looked at to see that: the
ledger of each cluster says which of its topics are filled by a mirror, and through which clusters their records came. A
topic whose records came through the target is not mirrored to it.

Two mirrors in opposite directions may begin at the same moment. Each writes its claim first and reads the ledger of its
source after that, so at least one of them sees the other's claim; it takes its own back (`after_claim`).
"""

from __future__ import annotations

from dataclasses import dataclass

from barnabas.mirror.ledger import Claim


@dataclass(frozen=True, slots=True)
class Refused:
    """The topic is not mirrored; why, and what to do about it."""

    reason: str
    is_circle: bool = False


@dataclass(frozen=True, slots=True)
class Create:
    """The target has no such topic yet."""


@dataclass(frozen=True, slots=True)
class WriteClaim:
    """Write this claim, then look once more."""

    claim: Claim


@dataclass(frozen=True, slots=True)
class Proceed:
    """All is settled."""


Decision = Refused | Create | WriteClaim | Proceed


@dataclass(frozen=True, slots=True)
class ClaimCheck:
    """What is known of a topic in both clusters.

    `claim` is the target's on its topic, `upstream` the source's on the topic there; each counts only where it is of
    the topic that there is now. `target_topic_id` is None where there is none; `target_is_empty` tells of the records.
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
        """The clusters that the records have come through when they are in the target."""
        return (*(self._upstream.path if self._upstream else ()), self.source_cluster)

    @property
    def is_circular(self) -> bool:
        """Whether the records came from the target."""
        return self.target_cluster in self.path

    def decide(self) -> Decision:
        """Return what is to be done about the topic."""
        if self.is_circular:
            way = " -> ".join((*self.path, self.target_cluster))
            return Refused(f"topic {self.topic!r}: its records came from the target ({way})", is_circle=True)
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
        """Return why the target's topic cannot be the mirror, if it cannot."""
        if claim is None:
            if self.target_is_empty:
                return None
            return Refused(
                f"topic {self.target_topic!r} of the target has records that no mirror brought;"
                " delete it there, or mirror under another name (--prefix)"
            )
        if (claim.source_cluster, claim.source_topic) != (self.source_cluster, self.topic):
            return Refused(
                f"topic {self.target_topic!r} of the target is the mirror of {claim.source_topic!r} in cluster"
                f" {claim.source_cluster}; mirror under another name (--prefix)"
            )
        if claim.source_topic_id != self.source_topic_id:
            return Refused(
                f"topic {self.topic!r} was deleted in the source and made again; the target still has the records of"
                " the one before: delete the topic there to have the new one mirrored"
            )
        return None
