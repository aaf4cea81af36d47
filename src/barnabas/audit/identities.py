"""What makes a record this one and no other, and fingerprints of many of them.

A record is identified by its producer's id and epoch, its partition and its sequence number (KIP-98): they come with
its batch, and stay with it wherever the batch goes. Where a producer has no id, the offset stands for the sequence
number; that is an identity from the log on. A mirror gives records another identity, which says where they are in the
source (`records/mirror_identity.py`): all that come from one topic count as one producer's, and their source offsets
are the numbers.

A fingerprint is a sum of hashes, so that the order does not matter, parts can be added, and one lost and one doubled
record do not cancel out as they do in a count. The hash of sequence number x is a polynomial of degree 3 in the field
of the integers modulo 2^61 - 1, with coefficients that are drawn for each producer, epoch and partition. Its sum over
any range of sequence numbers is in closed form: a million records cost no more than one. Two sets of records of the
same size have the same fingerprint only by an accident of one in 2^61, or where the first three sums of their
sequence numbers' powers are the same: for that, at least four records must be lost and four others doubled.
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
"""Fingerprints are integers from 0 to before this prime."""

PRODUCERS_REMEMBERED = 10_000

_COEFFICIENTS = struct.Struct(">QQQQ")


class Producer(NamedTuple):
    """Whose records they are, and in which partition."""

    producer_id: int
    producer_epoch: int
    partition: int

    @property
    def is_mirror(self) -> bool:
        """Whether these are mirrored records, numbered by their source offsets, which need not be without gaps."""
        return self.producer_id >= MIRROR_MARK

    @property
    def is_known(self) -> bool:
        """Whether it has numbered its records itself."""
        return self.producer_id != NO_PRODUCER_ID


def identity_of(header: BatchHeader, partition: int) -> tuple[Producer, int]:
    """Return whose records a batch has, and the number of the first of them."""
    if header.producer_id == NO_PRODUCER_ID or header.base_sequence < 0:
        return Producer(NO_PRODUCER_ID, -1, partition), header.base_offset
    mirrored = source_place_of(header)
    if mirrored is not None:
        return Producer(mirrored.producer_id, 0, partition), mirrored.first
    return Producer(header.producer_id, header.producer_epoch, partition), header.base_sequence


@functools.lru_cache(PRODUCERS_REMEMBERED)
def coefficients(producer: Producer) -> tuple[int, ...]:
    """Return those of its polynomial: of x^0, x^1, x^2 and x^3."""
    key = struct.pack(">qqq", *producer)
    digest = hashlib.blake2b(key, digest_size=_COEFFICIENTS.size, person=b"barnabas audit").digest()
    return tuple(each % FIELD for each in _COEFFICIENTS.unpack(digest))


def _power_sums(end: int) -> tuple[int, int, int, int]:
    """Return the sums of x^0, x^1, x^2 and x^3 over all x from 0 to before `end`."""
    first = end * (end - 1) // 2
    return end, first, first * (2 * end - 1) // 3, first * first


def fingerprint(producer: Producer, first: int, count: int) -> int:
    """Return the sum of the hashes of `count` records with the sequence numbers (or offsets) from `first` on.

    >>> one = Producer(7, 0, 3)
    >>> (fingerprint(one, 0, 4) + fingerprint(one, 4, 6)) % FIELD == fingerprint(one, 0, 10)
    True
    """
    before, after = _power_sums(first), _power_sums(first + count)
    sums = (end - begin for begin, end in zip(before, after, strict=True))
    return sum(factor * each for factor, each in zip(coefficients(producer), sums, strict=True)) % FIELD
