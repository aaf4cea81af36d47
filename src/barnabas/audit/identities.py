"""The identities of records, and fingerprints of sets of records.

Producer id, producer epoch, partition and sequence number identify a record (KIP-98). They are part of its batch and
stay with it. For a producer without an id, the offset replaces the sequence number, so a record has this identity only
after it was appended to a log. A mirror gives records a second identity that names their source offsets
(`records/mirror_identity.py`): all records of one source topic appear as records of one producer, with source offsets
as numbers.

A fingerprint is a sum of hashes. So the order of records does not matter and partial sums can be added. Unlike in a
count, one lost and one duplicated record do not cancel out. The hash of sequence number x is a polynomial of degree 3
over the integers modulo 2^61 - 1, with coefficients derived from producer id, epoch and partition. The sum over any
range of sequence numbers has a closed form, so a million records cost no more than one. Two different sets of equal
size have equal fingerprints with a probability of 2^-61, or if the sums of the first three powers of their numbers are
equal. The latter requires at least four lost and four duplicated records.
"""

from __future__ import annotations

import functools
import hashlib
import struct
from typing import NamedTuple

from barnabas.model import NO_PRODUCER_ID
from barnabas.records.header import BatchHeader
from barnabas.records.mirror_identity import MIRROR_MARK, source_place_of

FIELD = 2**61 - 1
"""The prime modulus of fingerprints, which are integers from 0 to FIELD - 1."""

PRODUCERS_REMEMBERED = 10_000

_COEFFICIENTS = struct.Struct(">QQQQ")


class Producer(NamedTuple):
    """The producer of records and their partition."""

    producer_id: int
    producer_epoch: int
    partition: int

    @property
    def is_mirror(self) -> bool:
        """True for mirrored records; their numbers are source offsets, which may have gaps."""
        return self.producer_id >= MIRROR_MARK

    @property
    def is_known(self) -> bool:
        """True if the producer has an id. Such a producer numbers its records."""
        return self.producer_id != NO_PRODUCER_ID


def identity_of(header: BatchHeader, partition: int) -> tuple[Producer, int]:
    """Return the producer of a batch and the number of its first record."""
    if header.producer_id == NO_PRODUCER_ID or header.base_sequence < 0:
        return Producer(NO_PRODUCER_ID, -1, partition), header.base_offset
    mirrored = source_place_of(header)
    if mirrored is not None:
        return Producer(mirrored.producer_id, 0, partition), mirrored.first
    return Producer(header.producer_id, header.producer_epoch, partition), header.base_sequence


@functools.lru_cache(PRODUCERS_REMEMBERED)
def coefficients(producer: Producer) -> tuple[int, ...]:
    """Return the coefficients of x^0 to x^3 in the producer's polynomial."""
    key = struct.pack(">qqq", *producer)
    digest = hashlib.blake2b(key, digest_size=_COEFFICIENTS.size, person=b"barnabas audit").digest()
    return tuple(each % FIELD for each in _COEFFICIENTS.unpack(digest))


def _power_sums(end: int) -> tuple[int, int, int, int]:
    """Return the sums of x^0, x^1, x^2 and x^3 over all x from 0 to `end` (exclusive)."""
    first = end * (end - 1) // 2
    return end, first, first * (2 * end - 1) // 3, first * first


def fingerprint(producer: Producer, first: int, count: int) -> int:
    """Return the sum of the hashes of `count` records whose sequence numbers or offsets start at `first`.

    >>> one = Producer(7, 0, 3)
    >>> (fingerprint(one, 0, 4) + fingerprint(one, 4, 6)) % FIELD == fingerprint(one, 0, 10)
    True
    """
    before, after = _power_sums(first), _power_sums(first + count)
    sums = (end - begin for begin, end in zip(before, after, strict=True))
    return sum(factor * each for factor, each in zip(coefficients(producer), sums, strict=True)) % FIELD
