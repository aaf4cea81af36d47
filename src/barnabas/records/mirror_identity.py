"""What a mirrored batch says of where it came from: in its producer id, epoch and sequence, by arithmetic alone.

A stretch is a run of source offsets without holes. Its *origin* is the source offset that sequence number 0 stands for,
and origin + sequence is the source offset of each of its records. The origin is told by producer id and epoch:

    producer id   1 bit that marks mirrors | 20 bits of the lineage | 42 bits: origin >> 15
    epoch                                                             15 bits: origin & 0x7fff

Invariants, on which exactly-once rests:

- Of any mirrored batch, origin + last sequence + 1 is the source offset after the batch that it was made of. A batch
  with holes (the source is compacted) begins a stretch of its own, with that origin for which this holds.
- Origins only grow in a partition. So the pair of producer id and epoch only grows, and each stretch begins with
  sequence 0, as brokers demand of a new epoch (KIP-98).
- Nothing is drawn: any mirror, whenever it runs, gives the same batch the same identity, and a broker stores it once.

That an unknown producer may begin is what KIP-360 says; no broker hands out ids so large (they count from 0).
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
"""No log gets as far."""

_LINEAGE_MASK = (1 << LINEAGE_BITS) - 1
_REGION_MASK = (1 << REGION_BITS) - 1
_EPOCH_MASK = (1 << EPOCH_BITS) - 1


class Producer(NamedTuple):
    """What stands in the header of a batch for who sent it."""

    id: int
    epoch: int


def lineage_of(cluster_id: str, topic_id: bytes) -> int:
    """Return the 20 bits for a topic of a cluster: batches of another one are not taken for this one's.

    >>> lineage_of("a", b"1") == lineage_of("a", b"2")
    False
    """
    return crc32c(cluster_id.encode() + b"\0" + topic_id) & _LINEAGE_MASK


def producer_of(lineage: int, origin: int) -> Producer:
    """Return the producer of a stretch.

    :raises ValueError: an origin that no log reaches.

    >>> origin_of(5, producer_of(5, 1_000_000)), origin_of(6, producer_of(5, 1_000_000))
    (1000000, None)
    """
    if not 0 <= origin <= ORIGIN_MAX:
        raise ValueError(f"origin {origin} is not between 0 and {ORIGIN_MAX}")
    region = origin >> EPOCH_BITS
    return Producer(MIRROR_MARK | lineage << REGION_BITS | region, origin & _EPOCH_MASK)


def origin_of(lineage: int, producer: Producer) -> int | None:
    """Return the origin of a stretch, or None where the producer is no mirror of this lineage."""
    if producer.id < MIRROR_MARK or producer.epoch < 0:
        return None
    if (producer.id & ~MIRROR_MARK) >> REGION_BITS != lineage:
        return None
    return (producer.id & _REGION_MASK) << EPOCH_BITS | producer.epoch


class Provenance(NamedTuple):
    """Where a mirrored batch came from."""

    origin: int
    source_next: int
    """The source offset after the batch that it was made of."""


def provenance_of(lineage: int, header: BatchHeader) -> Provenance | None:
    """Return where a batch came from, or None where no mirror of this lineage has sent it."""
    origin = origin_of(lineage, Producer(header.producer_id, header.producer_epoch))
    if origin is None or header.base_sequence < 0:
        return None
    return Provenance(origin, origin + header.base_sequence + header.last_offset_delta + 1)


class SourcePlace(NamedTuple):
    """Which records of which source a mirrored batch has."""

    producer_id: int
    """Of the lineage as a whole, whatever the stretch."""
    first: int
    """The source offset of the first of them."""


def producer_id_of(lineage: int) -> int:
    """Return the id under which all records of a lineage are counted, their source offsets for numbers."""
    return MIRROR_MARK | lineage << REGION_BITS


def source_place_of(header: BatchHeader) -> SourcePlace | None:
    """Return which records a batch has, or None where no mirror has sent it.

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
    """Return whether so many records may be in a stretch from this sequence number on: none goes round."""
    return first_sequence + count - 1 <= SEQUENCE_MAX
