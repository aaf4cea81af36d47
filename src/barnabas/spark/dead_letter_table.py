"""The dead-letter table of a load. It contains each bad record exactly once, even if loads are killed.

The dead-letter table has a commit of its own, before the commit of the load. A load leaves out bad records that the
table already has:

- A kill before the first commit leaves both tables unchanged.
- A kill between the two commits leaves the bad records here, and the load undone. The next load reads its ranges again,
and
  its tasks leave out the offsets that already have rows.
- The same holds for a range that is loaded again on purpose, into another table or after a rollback.
- Of two loads at once, one fails with a conflict, in either table.

The ledger (ledger.py) has the offset of each partition from which on there are no rows. The load reads the rows only if
a range begins before that offset. A ledger is valid for one topic id. For another topic of that name, or if the topic
id is unknown, the load reads the rows, which have a topic id of their own.

A load without bad records does not commit here. The ledger here is then older than the ledger of the load, which is
harmless: it only must cover the rows. Each load decides which records are bad; a load with other column types may add
other ones.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from barnabas.errors import ConfigurationError
from barnabas.model import TopicPartition
from barnabas.spark.bad_records import BadRecords
from barnabas.spark.data_files import DataFile
from barnabas.spark.dead_letter_files import DeadLetterSettings
from barnabas.spark.errors import HistoryExpiredError
from barnabas.spark.ledger import BAD_RECORDS, Ledger, LoadedTopic, snapshot_properties
from barnabas.spark.load_folder import Folder, claim_folder, remove_leftovers
from barnabas.spark.offset_ranges import OffsetRange
from barnabas.spark.table_schema import DEAD_LETTERS, REASON, TOPIC_ID
from barnabas.spark.table_shape import TableShape
from barnabas.spark.table_store import TableStore

_PLACE = pa.schema([("partition", pa.int32()), ("offset", pa.int64())])
_OWN_FIELDS = {REASON: "string", TOPIC_ID: "string"}


class DeadLetterTable:
    """The dead-letter table during one load. Call `commit` or `discard` at the end.

    :raises ConfigurationError: The table is not a dead-letter table.
    :raises WarehouseError: The table cannot be read.
    """

    def __init__(self, store: TableStore, name: str, load_id: str) -> None:
        self._base = store.begin(name)
        self._base.check_accepts_loads()
        self._load_id = load_id
        shape = self._base.shape(DEAD_LETTERS)
        if shape is not None and (shape.value_format != DEAD_LETTERS or REASON not in shape.columns.values()):
            raise ConfigurationError(
                f"table {self._base.name} is not a dead-letter table: choose another name, or a table that does not "
                "exist yet, with dead_letter_table=... (--dead-letter-table NAME)"
            )
        own = shape or TableShape(DEAD_LETTERS, {}, takes_new_fields=False, widens_types=self._base.widens_types)
        self._shape = replace(
            own,
            fields={**(own.fields or {}), **_OWN_FIELDS},
            columns={**own.columns, **{name: name for name in _OWN_FIELDS}},
        )
        self._ledger = self._what_it_has()
        self._location = self._base.location()
        self._folder: Folder | None = None
        folder = self._location.local_folder
        if folder is not None:
            remove_leftovers(folder, partial(store.committed_loads, name))

    @property
    def name(self) -> str:
        return self._base.name

    def _what_it_has(self) -> Ledger:
        """Return the ledger. If it has expired, derive the offsets from the rows, with unknown topic ids."""
        try:
            return self._base.ledger()
        except HistoryExpiredError:
            topics: dict[str, dict[int, int]] = {}
            for (topic, partition), offset in self._base.next_offsets_of_rows().items():
                topics.setdefault(topic, {})[partition] = offset
            return Ledger({topic: LoadedTopic("", offsets) for topic, offsets in topics.items()})

    def claim(self, topic_ids: Mapping[str, str], ranges: Sequence[OffsetRange]) -> DeadLetterSettings:
        """Create this load's data directory, and return the settings of its tasks.

        :param topic_ids: The ids of the loaded topics.
        :param ranges: The offset ranges that the load reads.
        :raises WarehouseError: The directory cannot be created, or the table's rows cannot be read.
        """
        known = {
            partition: offsets
            for topic, topic_id in topic_ids.items()
            for partition, offsets in self._known(
                topic, topic_id, [each for each in ranges if each.topic == topic and each.count]
            )
        }
        self._folder = claim_folder(self._location, self._load_id, self.name)
        target = self._base.target_file_bytes
        folder = f"{self._location.uri}/data/{self._load_id}"
        layout = self._shape.table_layout
        return DeadLetterSettings(folder, dict(self._location.properties), dict(topic_ids), known, target, layout)

    def _known(
        self, topic: str, topic_id: str, ranges: Sequence[OffsetRange]
    ) -> Iterator[tuple[TopicPartition, np.ndarray]]:
        """Yield the offsets in the ranges of a topic that already have rows, in ascending order, by partition."""
        loaded = self._ledger.topics.get(topic)
        if loaded is None:
            return
        if loaded.topic_id != topic_id:
            ends = dict[int, int]()
            found = _inside(ranges, self._rows_of(topic, topic_id, 0), ends)
            self._ledger = Ledger({**self._ledger.topics, topic: LoadedTopic(topic_id, ends)})
        else:
            again = [each for each in ranges if each.start_offset < loaded.next_offsets.get(each.partition, 0)]
            if not again:
                return
            found = _inside(ranges, self._rows_of(topic, topic_id, min(each.start_offset for each in again)))
        for partition, offsets in found.items():
            yield TopicPartition(topic, partition), offsets

    def _rows_of(self, topic: str, topic_id: str, start_offset: int) -> Iterator[pa.RecordBatch]:
        """Yield the columns `partition` and `offset` of a topic's rows. Rows without a topic id are included."""
        for batch in self._base.rows_of(topic, start_offset, (*_PLACE.names, TOPIC_ID)):
            is_its = pc.field(TOPIC_ID).is_null() | (pc.field(TOPIC_ID) == topic_id)
            has_ids = topic_id and TOPIC_ID in batch.schema.names
            yield (batch.filter(is_its) if has_ids else batch).select(_PLACE.names).cast(_PLACE)

    def commit(
        self, files: Sequence[DataFile], bad: BadRecords, topic_ids: Mapping[str, str], ranges: Sequence[OffsetRange]
    ) -> int:
        """Add the rows, and return their number.

        :param bad: The bad records of the load.
        :param ranges: The offset ranges that the load has read.
        :raises LoadConflictError: Another writer has committed meanwhile.
        :raises WarehouseError: The commit failed, and the table is unchanged.
        """
        assert self._folder is not None, "claim was called"
        if not files:
            self.discard()
            return 0
        rows = sum(file.records for file in files)
        ledger = self._ledger.advanced(topic_ids, map(self._no_earlier, ranges))
        properties = {
            **snapshot_properties(self._load_id, ledger, ranges, rows),
            BAD_RECORDS: json.dumps(bad.reasons, ensure_ascii=False),
        }
        folder, self._folder = self._folder, None
        folder.keep_only(file.path for file in files)
        try:
            self._base.commit(files, properties, self._shape)
        except BaseException as error:
            folder.give_up_after(error)
            raise
        folder.release()
        return rows

    def _no_earlier(self, loaded: OffsetRange) -> OffsetRange:
        """Extend a range so that the ledger never goes back.

        A load of another table may have been planned before the last commit here. With its smaller end offset, a later
        load could add the same bad records again.
        """
        known = self._ledger.topics.get(loaded.topic)
        has = 0 if known is None else known.next_offsets.get(loaded.partition, 0)
        return replace(loaded, end_offset=max(loaded.end_offset, has))

    def discard(self) -> None:
        """Remove the files of the tasks, unless `commit` was called."""
        folder, self._folder = self._folder, None
        if folder is not None:
            folder.discard()


def _inside(
    ranges: Sequence[OffsetRange], rows: Iterable[pa.RecordBatch], ends: dict[int, int] | None = None
) -> dict[int, np.ndarray]:
    """Return the offsets of rows within the ranges of a topic, in ascending order, by partition.

    The rows are read batch by batch: the table may have many more rows than the ranges.

    :param ranges: At most one range of each partition.
    :param ends: Gets the offset after the last row of each partition, also outside of the ranges.
    """
    # Add an empty range after the last partition: `take` with mode clip maps all higher partitions to this range.
    starts, stops = np.zeros((2, max((each.partition for each in ranges), default=-1) + 2), np.int64)
    for each in ranges:
        starts[each.partition], stops[each.partition] = each.start_offset, each.end_offset
    partitions, offsets = [np.empty(0, np.int32)], [np.empty(0, np.int64)]
    for batch in rows:
        of, at = (column.to_numpy() for column in batch.columns)
        if ends is not None:
            for partition in np.unique(of).tolist():
                ends[partition] = max(ends.get(partition, 0), int(at[of == partition].max()) + 1)
        inside = (at >= starts.take(of, mode="clip")) & (at < stops.take(of, mode="clip"))
        partitions.append(of[inside])
        offsets.append(at[inside])
    of, at = np.concatenate(partitions), np.concatenate(offsets)
    return {partition: np.unique(at[of == partition]) for partition in np.unique(of).tolist()}
