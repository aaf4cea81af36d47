"""What the logs of a run say of values that its history has twice; `librdkafka-producer.log` says why a client sent
them twice."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from barnabas.model import TopicPartition
from tests.support.duplicate_values import Copies, told_of

SEEN = "SELECT DISTINCT value, topic, partition, position FROM seen JOIN places USING (place) ORDER BY 1, 2, 3, 4"


def what_is_doubled(folder: Path) -> list[str]:
    """Return a line for each set of batches that have values in common, with what their headers say.

    :param folder: of a run, with its history and the folders of its brokers.
    """
    return told_of(_doubled(folder / "history"), folder)


def _doubled(history: Path) -> Iterator[Copies]:
    with contextlib.closing(sqlite3.connect(history)) as database:
        known: dict[object, list[tuple[TopicPartition, int]]] = {}
        for value, topic, partition, offset in database.execute(SEEN):
            known.setdefault(value, []).append((TopicPartition(topic, partition), offset))
    return (tuple(copies) for copies in known.values() if len(copies) > 1)
