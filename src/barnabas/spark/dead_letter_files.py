"""The rows that a task writes for the dead-letter table: one row per bad record, in files by partition.

A row has the columns of the record, `reason`, and the topic id. Without the id, offsets would be ambiguous after a
topic was deleted and created again. Rows that the table already has are left out (dead_letter_table.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from barnabas.model import TopicPartition
from barnabas.spark.data_files import TARGET_BYTES, DataFile, PartitionedFiles, create_file
from barnabas.spark.table_layout import TableLayout
from barnabas.spark.table_schema import KAFKA_COLUMNS, REASON, TOPIC_ID, kafka_arrow_columns

BUFFERED_BYTES_MAX = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class DeadLetterSettings:
    """The destination of rows for the dead-letter table."""

    folder: str
    io_properties: Mapping[str, str]
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    """The id of each topic; "" if the brokers have no topic ids."""
    known: Mapping[TopicPartition, np.ndarray] = field(default_factory=dict)
    """The offsets in repeated ranges that already have rows, in ascending order, by partition."""
    target_file_bytes: int = TARGET_BYTES
    layout: TableLayout = field(default_factory=lambda: TableLayout.by_day("timestamp"))
    """The layout of the dead-letter table."""


class DeadLetterFiles:
    """The dead-letter rows of one task. Not thread-safe.

    :param name: The name of the task's files, unique to this attempt of the task.
    """

    def __init__(self, writing: DeadLetterSettings, name: str) -> None:
        self._topic_ids = writing.topic_ids
        self._known = writing.known
        self._files = PartitionedFiles(
            f"{writing.folder}/{name}",
            partial(create_file, writing.io_properties),
            writing.layout,
            buffered_bytes_max=BUFFERED_BYTES_MAX,
            target_bytes=writing.target_file_bytes,
        )

    def add(self, bad: pa.RecordBatch) -> None:
        """Add bad records of one partition, in the columns of the Spark source with headers and `reason`."""
        partition = TopicPartition(bad.column("topic")[0].as_py(), bad.column("partition")[0].as_py())
        new = self._without_known(partition, bad)
        if len(new):
            topic_ids = pa.repeat(pa.scalar(self._topic_ids.get(partition.topic) or None, pa.string()), len(new))
            columns = [*kafka_arrow_columns(new), new.column(REASON), topic_ids]
            self._files.add(pa.RecordBatch.from_arrays(columns, names=[*KAFKA_COLUMNS, REASON, TOPIC_ID]))

    def _without_known(self, partition: TopicPartition, bad: pa.RecordBatch) -> pa.RecordBatch:
        known, offsets = self._known.get(partition), bad.column("offset")
        if known is None:
            return bad
        begin, end = np.searchsorted(known, [offsets[0].as_py(), offsets[-1].as_py() + 1])
        return bad.filter(pc.invert(pc.is_in(offsets, value_set=pa.array(known[begin:end]))))

    def finish(self) -> tuple[DataFile, ...]:
        """Write the buffered rows, and return all files."""
        return tuple(self._files.finish())
