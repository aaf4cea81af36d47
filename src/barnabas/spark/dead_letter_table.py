"""The dead-letter table of a load: its bad records, each once, whatever is killed when.

It is a table of its own, so it has a commit of its own, and a load may end between the two. So this one comes first,
and has a ledger (ledger.py) that says up to which offset it has the bad records of a partition:

- a kill before it leaves both tables as they were;
- a kill between the two leaves the bad records here and the load undone: the next load reads its ranges again, and its
  tasks leave out the rows of offsets before that ledger's;
- two loads at once: the second is refused, by whichever of the tables it comes to first.

A load without bad records leaves the table alone. Its ledger is then behind that of the load, which loses nothing: it
only has to be ahead of the rows. Which records are bad, the load has decided that put them here: where that one was not
committed, and the next one finds other types for the columns of a new table, it may find others bad.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from barnabas.errors import ConfigurationError
from barnabas.model import TopicPartition
from barnabas.spark.bad_records import BadRecords
from barnabas.spark.day_files import DataFile
from barnabas.spark.dead_letter_files import DeadLetterWriting
from barnabas.spark.errors import HistoryExpiredError
from barnabas.spark.ledger import BAD_RECORDS, Ledger, LoadedTopic, snapshot_properties
from barnabas.spark.leftovers import Folder, claim_folder, remove_leftovers
from barnabas.spark.planning import OffsetRange
from barnabas.spark.table_schema import DEAD_LETTERS, REASON
from barnabas.spark.table_shape import TableShape
from barnabas.spark.table_store import TableStore


class DeadLetterTable:
    """One load's part in it. End it with `commit` or `discard`.

    :raises ConfigurationError: the table is no dead-letter table.
    :raises WarehouseError: it cannot be read.
    """

    def __init__(self, store: TableStore, name: str, load_id: str) -> None:
        self._base = store.begin(name)
        self._load_id = load_id
        shape = self._base.shape(DEAD_LETTERS)
        if shape is not None and (shape.value_format != DEAD_LETTERS or REASON not in shape.columns.values()):
            raise ConfigurationError(
                f"table {self._base.name} is no dead-letter table: name another, or one that does not exist yet, "
                "dead_letter_table=... (--dead-letter-table NAME)"
            )
        self._shape = shape or TableShape(
            DEAD_LETTERS,
            {REASON: "string"},
            {REASON: REASON},
            takes_new_fields=False,
            widens_types=self._base.widens_types,
        )
        self._ledger = self._what_it_has()
        self._next_offsets: dict[TopicPartition, int] = {}
        self._location = self._base.location()
        self._folder: Folder | None = None
        folder = self._location.local_folder
        if folder is not None:
            remove_leftovers(folder, partial(store.committed_loads, name))

    @property
    def name(self) -> str:
        return self._base.name

    def _what_it_has(self) -> Ledger:
        """Return up to where it has bad records; where its history has expired, its rows tell."""
        try:
            return self._base.ledger()
        except HistoryExpiredError:
            topics: dict[str, dict[int, int]] = {}
            for (topic, partition), offset in self._base.next_offsets_of_rows().items():
                topics.setdefault(topic, {})[partition] = offset
            return Ledger({topic: LoadedTopic("", offsets) for topic, offsets in topics.items()})

    def claim(self, topic_ids: Mapping[str, str]) -> DeadLetterWriting:
        """Make this load's folder, and return what its tasks are to know.

        :param topic_ids: of the topics that are loaded. What was in a topic that was deleted since is no record of it.
        :raises WarehouseError: the folder cannot be made.
        """
        self._folder = claim_folder(self._location, self._load_id, self.name)
        self._next_offsets = {
            TopicPartition(topic, partition): offset
            for topic, loaded in self._ledger.topics.items()
            if "" in (loaded.topic_id, topic_ids.get(topic, "")) or loaded.topic_id == topic_ids[topic]
            for partition, offset in loaded.next_offsets.items()
        }
        target = self._base.target_file_bytes
        folder = f"{self._location.uri}/data/{self._load_id}"
        return DeadLetterWriting(folder, dict(self._location.properties), self._next_offsets, target)

    def commit(
        self, files: Sequence[DataFile], bad: BadRecords, topic_ids: Mapping[str, str], ranges: Sequence[OffsetRange]
    ) -> int:
        """Add the rows, and return how many there were.

        :param bad: of the load; `ranges`: what it has read.
        :raises LoadConflictError: somebody else has committed meanwhile.
        :raises WarehouseError: it could not be done, and the table is as before.
        """
        assert self._folder is not None, "it has been claimed"
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
        try:
            self._base.commit(files, properties, self._shape)
        except BaseException as error:
            folder.give_up_after(error)
            raise
        folder.release()
        return rows

    def _no_earlier(self, loaded: OffsetRange) -> OffsetRange:
        """Return a range that does not end before what the table has: a load of another table that was planned before
        this one's last may know less of a partition, and would have its bad records put here once more."""
        has = self._next_offsets.get(loaded.topic_partition, 0)
        return replace(loaded, end_offset=max(loaded.end_offset, has))

    def discard(self) -> None:
        """Remove what tasks have written, where it was not committed."""
        folder, self._folder = self._folder, None
        if folder is not None:
            folder.discard()
