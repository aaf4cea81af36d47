"""The source of a mirrored batch, encoded in the producer id, epoch and sequence of the batch.

A stretch is a range of consecutive source offsets. Its *origin* is the source offset of sequence 0, so the source
offset of each record in the stretch is origin + sequence. The producer id and the epoch contain the origin:

    producer id   1 bit that marks mirrors | 20 bits of the lineage | 42 bits: origin >> 15
    epoch                                                             15 bits: origin & 0x7fff

Invariants, which exactly-once delivery requires:

- For each mirrored batch, origin + last sequence + 1 is the source offset after the original batch. A batch with gaps,
  from a compacted source, starts a new stretch with an origin that satisfies this equation.
- Origins only grow within a partition. So the pair of producer id and epoch only grows, and each stretch begins with
  sequence 0, as brokers require for a new epoch (KIP-98).
- The identity contains no random part. Every mirror gives the same batch the same identity at any time, so a broker
  stores the batch once.

Brokers accept a producer that they do not know yet (KIP-360). They never allocate such large producer ids, because
allocation starts at 0.
"""

from __future__ import annotations

from typing import NamedTuple

from crc32c import crc32c

from barnabas.records.header import SEQUENCE_MAX, BatchHeader

MIRROR_MARK = 1 << 62
LINEAGE_BITS = 20
REGION_BITS = 42
EPOCH_BITS = 15
ORIGIN_MAX = (1 << (REGION_BITS + EPOCH_BITS)) - 1
"""The greatest origin. No log reaches such an offset."""

_LINEAGE_MASK = (1 << LINEAGE_BITS) - 1
_REGION_MASK = (1 << REGION_BITS) - 1
_EPOCH_MASK = (1 << EPOCH_BITS) - 1


class Producer(NamedTuple):
    """The producer id and epoch in a batch header."""

    id: int
    epoch: int


def lineage_of(cluster_id: str, topic_id: bytes) -> int:
    """Return the lineage of a topic: 20 bits that distinguish its batches from batches of other topics and clusters.

    >>> lineage_of("a", b"1") == lineage_of("a", b"2")
    False
    """
    return crc32c(cluster_id.encode() + b"\0" + topic_id) & _LINEAGE_MASK


def producer_of(lineage: int, origin: int) -> Producer:
    """Return the producer id and epoch of a stretch.

    :raises ValueError: the origin is out of range.

    >>> origin_of(5, producer_of(5, 1_000_000)), origin_of(6, producer_of(5, 1_000_000))
    (1000000, None)
    """
    if not 0 <= origin <= ORIGIN_MAX:
        raise ValueError(f"origin {origin} is not between 0 and {ORIGIN_MAX}")
    region = origin >> EPOCH_BITS
    return Producer(MIRROR_MARK | lineage << REGION_BITS | region, origin & _EPOCH_MASK)


def origin_of(lineage: int, producer: Producer) -> int | None:
    """Return the origin of a stretch, or None if the producer is not a mirror of this lineage."""
    if producer.id < MIRROR_MARK or producer.epoch < 0:
        return None
    if (producer.id & ~MIRROR_MARK) >> REGION_BITS != lineage:
        return None
    return (producer.id & _REGION_MASK) << EPOCH_BITS | producer.epoch


class Provenance(NamedTuple):
    """The origin of a mirrored batch, and the end of the batch in the source."""

    origin: int
    source_next: int
    """The source offset after the original batch."""


def provenance_of(lineage: int, header: BatchHeader) -> Provenance | None:
    """Return the provenance of a batch, or None if no mirror of this lineage sent the batch."""
    origin = origin_of(lineage, Producer(header.producer_id, header.producer_epoch))
    if origin is None or header.base_sequence < 0:
        return None
    return Provenance(origin, origin + header.base_sequence + header.last_offset_delta + 1)


class SourcePlace(NamedTuple):
    """The lineage and the first source offset of the records in a mirrored batch."""

    producer_id: int
    """The producer id that identifies the lineage. It is equal for all stretches."""
    first: int
    """The source offset of the first record."""


def producer_id_of(lineage: int) -> int:
    """Return the producer id under which the audit counts all records of a lineage.

    The audit uses their source offsets as sequence numbers.
    """
    return MIRROR_MARK | lineage << REGION_BITS


def source_place_of(header: BatchHeader) -> SourcePlace | None:
    """Return the source of the records in a batch, or None if no mirror sent the batch.

    >>> from barnabas.records import BatchBuilder, read_header
    >>> builder = BatchBuilder()
    >>> _ = builder.append(0, None, b"1")
    >>> place = source_place_of(read_header(builder.build(*producer_of(5, 1_000_000), 7)))
    >>> place == (producer_id_of(5), 1_000_007)
    True
    """
    if header.producer_id < MIRROR_MARK or header.producer_epoch < 0 or header.base_sequence < 0:
        return None
    lineage = (header.producer_id >> REGION_BITS) & _LINEAGE_MASK
    origin = (header.producer_id & _REGION_MASK) << EPOCH_BITS | header.producer_epoch
    return SourcePlace(producer_id_of(lineage), origin + header.base_sequence)


def fits_stretch(first_sequence: int, count: int) -> bool:
    """Return whether `count` records from this sequence on fit into a stretch without a sequence overflow."""
    return first_sequence + count - 1 <= SEQUENCE_MAX
