"""Counts the records that a load task writes, for the audit: by window, producer and offset.

The batch header identifies the producer of a record; the decoded columns have the offsets and times of the records. The
counter joins both by offset, in columns, without a Python object per record.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from barnabas.audit.account import Account, offsets_of
from barnabas.audit.column_tallies import Numbers, tallies_by_window, windows_of
from barnabas.audit.identities import Producer, identity_of
from barnabas.model import NO_PRODUCER_ID, TopicPartition
from barnabas.records import iter_headers
from barnabas.records.header import SEQUENCE_MAX, BatchHeader, Buffer


class LoadAuditCounter:
    """Counts the written records. Not thread-safe.

    :param width_ms: The width of a window, in milliseconds.
    """

    def __init__(self, width_ms: int) -> None:
        self._width_ms = width_ms
        self._headers: list[BatchHeader] = []
        self.account = Account()

    def saw(self, batches: Buffer) -> None:
        """Store the headers of fetched batches. The next calls of `add` pass the records of these batches."""
        self._headers = [header for _position, header in iter_headers(batches)]

    def add(self, where: TopicPartition, records: pa.RecordBatch) -> None:
        """Count records of the batches that the last call of `saw` passed.

        :param records: Records in the order of their offsets, with the columns `offset` and `timestamp` (ms).
        """
        if not len(records):
            return
        offsets: Numbers = records.column("offset").to_numpy(zero_copy_only=False)
        times_ms: Numbers = records.column("timestamp").cast(pa.int64()).to_numpy(zero_copy_only=False)
        windows_ms = windows_of(times_ms, self._width_ms)
        for window_ms, found in tallies_by_window(offsets_of(where.partition), offsets, windows_ms).items():
            self.account.of(where.topic, window_ms).add({}, {where.partition: found})
        headers = [header for header in self._headers if header.base_sequence >= 0]
        for producer, places, sequences in _identities(headers, where.partition, offsets):
            for window_ms, found in tallies_by_window(producer, sequences, windows_ms[places]).items():
                self.account.of(where.topic, window_ms).add({producer: found}, {})


def _identities(
    headers: list[BatchHeader], partition: int, offsets: Numbers
) -> Iterable[tuple[Producer, Numbers, Numbers]]:
    """Yield each producer with the indexes of its records in `offsets`, and their sequence numbers."""
    numbered = [header for header in headers if header.producer_id != NO_PRODUCER_ID]
    if not numbered:
        return
    begins = np.array([header.base_offset for header in numbered])
    ends = np.array([header.next_offset for header in numbered])
    identities = [identity_of(header, partition) for header in numbered]
    firsts = np.array([first for _producer, first in identities])
    producers = list(dict.fromkeys(producer for producer, _first in identities))
    number_of = {each: number for number, each in enumerate(producers)}
    owners = np.array([number_of[producer] for producer, _first in identities])
    batch = np.searchsorted(begins, offsets, side="right") - 1
    has_batch = (batch >= 0) & (offsets < ends[batch])
    owner = np.where(has_batch, owners[batch], len(producers))
    for number, producer in enumerate(producers):
        places = np.flatnonzero(owner == number)
        if len(places):
            own = batch[places]
            of_records = firsts[own] + (offsets[places] - begins[own])
            yield producer, places, of_records if producer.is_mirror else of_records & SEQUENCE_MAX
