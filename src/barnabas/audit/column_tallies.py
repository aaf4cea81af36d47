"""Computes the tallies of many records from columns of record numbers and event times, for loads and table scans.

A range of consecutive records in one window costs as much as a single record. If windows alternate, each record is
hashed separately, with arithmetic on whole columns. Residues modulo 2^61 - 1 are multiplied in halves of 31 bits, so
that no intermediate result exceeds 64 bits.
"""

from __future__ import annotations

import numpy as np

from barnabas.audit.identities import FIELD, Producer, coefficients, fingerprint
from barnabas.audit.windows import NO_WINDOW_MS, NOTHING, Tally
from barnabas.model import NO_TIMESTAMP

Numbers = np.ndarray[tuple[int], np.dtype[np.int64]]
Residues = np.ndarray[tuple[int], np.dtype[np.uint64]]

RECORDS_PER_RANGE_MIN = 16
"""The minimum size of a range whose fingerprint is cheaper to compute as a whole than record by record."""

_P = np.uint64(FIELD)
_BITS = np.uint64(61)
_HALF = np.uint64(31)
_REST = np.uint64(30)
_LOW_HALF = np.uint64(2**31 - 1)
_LOW_REST = np.uint64(2**30 - 1)


def windows_of(timestamps_ms: Numbers, width_ms: int) -> Numbers:
    """Return the starts in ms of the windows that contain the timestamps.

    >>> windows_of(np.array([125_000, -1]), 60_000).tolist()
    [120000, -1]
    """
    return np.where(timestamps_ms <= NO_TIMESTAMP, NO_WINDOW_MS, timestamps_ms - timestamps_ms % width_ms)


def tallies_by_window(producer: Producer, numbers: Numbers, windows_ms: Numbers) -> dict[int, Tally]:
    """Return the tallies of records by window. The sizes in the tallies are 0.

    :param numbers: sequence numbers or offsets of the records.
    """
    if not len(numbers):
        return {}
    breaks = np.flatnonzero((np.diff(numbers) != 1) | (np.diff(windows_ms) != 0)) + 1
    if (len(breaks) + 1) * RECORDS_PER_RANGE_MIN > len(numbers):
        return _hashed(producer, numbers, windows_ms)
    begins = [0, *breaks.tolist()]
    ends = [*begins[1:], len(numbers)]
    found: dict[int, Tally] = {}
    for begin, end in zip(begins, ends, strict=True):
        window_ms, count = int(windows_ms[begin]), end - begin
        record_range = Tally(count, 0, fingerprint(producer, int(numbers[begin]), count))
        found[window_ms] = found.get(window_ms, NOTHING).plus(record_range)
    return found


def _hashed(producer: Producer, numbers: Numbers, windows_ms: Numbers) -> dict[int, Tally]:
    order = np.argsort(windows_ms, kind="stable")
    in_order = windows_ms[order]
    begins = np.concatenate(([0], np.flatnonzero(np.diff(in_order)) + 1))
    hashes = hashes_of(producer, numbers)[order]
    # Sums of 32-bit halves of up to 2^33 hashes fit into 64 bits.
    low, high = (np.add.reduceat(each, begins) for each in (hashes & _LOW_HALF, hashes >> _HALF))
    counts = np.diff(np.append(begins, len(numbers)))
    return {
        window_ms: Tally(count, 0, (low_sum + (high_sum << 31)) % FIELD)
        for window_ms, count, low_sum, high_sum in zip(
            in_order[begins].tolist(), counts.tolist(), low.tolist(), high.tolist(), strict=True
        )
    }


def hashes_of(producer: Producer, numbers: Numbers) -> Residues:
    """Return the hash of each record. It equals the `fingerprint` of a range with only that record.

    :param numbers: sequence numbers or offsets, not negative.
    """
    first, *rest = (np.uint64(each) for each in reversed(coefficients(producer)))
    residues = numbers.astype(np.uint64) % _P
    hashes = np.full(len(numbers), first)
    for coefficient in rest:
        hashes = _reduced(_product(hashes, residues) + coefficient)
    return hashes


def _product(one: Residues, other: Residues) -> Residues:
    one_high, one_low, high, low = one >> _HALF, one & _LOW_HALF, other >> _HALF, other & _LOW_HALF
    middle = one_high * low + one_low * high
    # Modulo 2^61 - 1, 2^62 equals 2 and 2^61 equals 1. Each summand has at most 62 bits.
    return _reduced(
        (one_high * high << np.uint64(1))
        + (middle >> _REST)
        + ((middle & _LOW_REST) << _HALF)
        + _reduced(one_low * low)
    )


def _reduced(values: Residues) -> Residues:
    folded = (values & _P) + (values >> _BITS)
    return np.where(folded >= _P, folded - _P, folded)
