"""The stream of an order table's changes as record batches, in order of arrival."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import islice

import pyarrow as pa

from barnabas.laboratory.orders.delivery import DeliverySettings, delivered
from barnabas.laboratory.orders.envelopes import Envelope, records_of
from barnabas.laboratory.orders.final_rows import FinalRows
from barnabas.laboratory.orders.order_table import Change, OrderSettings, changes

BATCH_CHANGES = 2_000
SPREAD = 1 << 30
"""The limit (exclusive) of the column `spread`."""


class OrderStream:
    """The changes of a table of orders, and the rows after the changes yielded so far. Not thread-safe.

    :param tombstones: True if a tombstone follows each delete.
    """

    def __init__(
        self,
        settings: OrderSettings,
        delivery: DeliverySettings | None = None,
        envelope: Envelope = "debezium",
        *,
        tombstones: bool = True,
    ) -> None:
        self.truth = FinalRows()
        self.changes_made = 0
        self._settings = settings
        self._delivery = delivery or DeliverySettings()
        self._envelope: Envelope = envelope
        self._tombstones = tombstones
        self._is_stopped = False

    def stop(self) -> None:
        """End the stream: the next batch has the late changes, and is the last one."""
        self._is_stopped = True

    def batches(self, count: int | None = None, at_most: int = BATCH_CHANGES) -> Iterator[pa.RecordBatch]:
        """Yield batches with the columns key, value, timestamp (the time of the change), and spread (a random number).

        The expected rows include a batch as soon as the caller requests the next batch.

        :param count: the number of changes; repeated changes and tombstones are additional. None for an endless stream.
        :param at_most: the number of changes after which a batch ends. The batch size does not change the records.
        """
        draw = random.Random(f"spread {self._settings.seed}").random
        held: list[Change] = []
        for group in delivered(self._made(count), self._delivery, self._settings.seed):
            held += group
            if len(held) >= at_most:
                yield self._batch(held, [int(draw() * SPREAD) for _ in held])
                self._count(held)
                held = []
        if held:
            yield self._batch(held, [int(draw() * SPREAD) for _ in held])
            self._count(held)

    def _made(self, count: int | None) -> Iterator[Change]:
        for change in islice(changes(self._settings), count):
            if self._is_stopped:
                return
            self.changes_made += 1
            yield change

    def _batch(self, held: list[Change], spread: list[int]) -> pa.RecordBatch:
        rows = [
            (key, value, change.time_ms, place)
            for change, place in zip(held, spread, strict=True)
            for key, value in records_of(change, self._envelope, tombstones=self._tombstones)
        ]
        keys, values, times, places = zip(*rows, strict=True)
        return pa.record_batch(
            {
                "key": pa.array(keys, pa.string()),
                "value": pa.array(values, pa.string()),
                "timestamp": pa.array(times, pa.int64()).cast(pa.timestamp("ms")),
                "spread": pa.array(places, pa.int32()),
            }
        )

    def _count(self, held: list[Change]) -> None:
        for change in held:
            self.truth.add(change)
