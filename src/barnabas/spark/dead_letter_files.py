"""What a task writes for the dead-letter table: a row for each bad record, in files by day as all tables have them.

A row has the record as it was (Kafka's columns) and `reason`. Rows that the table has already are left out: a load that
ended between its two commits has put them there (dead_letter_table.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from barnabas.model import TopicPartition
from barnabas.spark.day_files import TARGET_BYTES, DataFile, DayFiles, create_file
from barnabas.spark.table_schema import KAFKA_COLUMNS, REASON, kafka_arrow_columns

BUFFERED_BYTES_MAX = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class DeadLetterWriting:
    """Where tasks write rows for the dead-letter table.

    `next_offsets`: by partition, from where on it has no rows yet.
    """

    folder: str
    io_properties: Mapping[str, str]
    next_offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    target_file_bytes: int = TARGET_BYTES


class DeadLetterFiles:
    """The rows of one task. Not thread-safe.

    :param name: of the task's files, unique to this attempt of it.
    """

    def __init__(self, writing: DeadLetterWriting, name: str) -> None:
        self._next_offsets = writing.next_offsets
        self._files = DayFiles(
            f"{writing.folder}/{name}",
            partial(create_file, writing.io_properties),
            buffered_bytes_max=BUFFERED_BYTES_MAX,
            target_bytes=writing.target_file_bytes,
        )

    def add(self, bad: pa.RecordBatch) -> None:
        """Take bad records of one partition, in Spark's columns with headers, and `reason`."""
        partition = TopicPartition(bad.column("topic")[0].as_py(), bad.column("partition")[0].as_py())
        new = bad.filter(pc.greater_equal(bad.column("offset"), self._next_offsets.get(partition, 0)))
        if len(new):
            columns = [*kafka_arrow_columns(new), new.column(REASON)]
            self._files.add(pa.RecordBatch.from_arrays(columns, names=[*KAFKA_COLUMNS, REASON]))

    def finish(self) -> tuple[DataFile, ...]:
        """Write what is left, and return the files."""
        return tuple(self._files.finish())
