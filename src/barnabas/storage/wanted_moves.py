"""The logs that are to move into a data folder, stored there, so that a broker that starts again goes on with them.

The file `log-moves` in the target folder has a line for each log, with the id of its topic. It is replaced as a whole.
A damaged file counts as empty: an administrator can ask for a move again.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from barnabas.model import TopicPartition
from barnabas.storage.file_names import WANTED_MOVES, partition_of
from barnabas.storage.filesystem import FileSystem, read_file, remove_if_there, replace_file

logger = logging.getLogger(__name__)

MOVES_MAX = 10_000
"""The most moves at a time."""

Wanted = Mapping[TopicPartition, uuid.UUID | None]
"""The partitions to move, with the ids of their topics."""


class PendingMoves:
    """The wanted moves in the notes of the data folders. Used by one thread at a time.

    :param folders: returns the healthy ones.
    :param topic_ids: of all logs.
    """

    def __init__(
        self,
        filesystem: FileSystem,
        folders: Callable[[], Sequence[Path]],
        topic_ids: Mapping[TopicPartition, uuid.UUID],
    ) -> None:
        self._filesystem = filesystem
        self._folders = folders
        self._topic_ids = topic_ids
        self._noted: dict[Path, Wanted] = {}

    def read(self) -> dict[TopicPartition, Path]:
        """Return the wanted moves of the last run whose topic ids have not changed; unreadable notes are skipped."""
        found = {}
        for folder in self._folders():
            try:
                noted = self._noted[folder] = _read(self._filesystem, folder)
            except OSError as error:
                logger.warning("%s: cannot read the wanted moves of logs: %s", folder, error)
            else:
                found.update({each: folder for each, id_ in noted.items() if id_ == self._topic_ids.get(each)})
        return found

    def store(self, wanted: Mapping[TopicPartition, Path]) -> None:
        """Store the wanted moves durably, so that the next run goes on with them."""
        for folder in self._folders():
            there = {each: self._topic_ids.get(each) for each, path in wanted.items() if path == folder}
            if there != self._noted.get(folder, {}):
                try:
                    _store(self._filesystem, folder, there)
                except OSError as error:
                    logger.warning("%s: cannot store the wanted moves of logs: %s", folder, error)
                else:
                    self._noted[folder] = there


def _store(filesystem: FileSystem, folder: Path, wanted: Wanted) -> None:
    path = folder / WANTED_MOVES
    if wanted:
        lines = [f"{'-' if topic_id is None else topic_id.hex} {where}\n" for where, topic_id in wanted.items()]
        replace_file(filesystem, path, "".join(lines).encode(), durable=True)
    else:
        remove_if_there(filesystem, path)


def _read(filesystem: FileSystem, folder: Path) -> Wanted:
    try:
        lines = read_file(filesystem, folder / WANTED_MOVES).decode("ascii", "replace").splitlines()
    except FileNotFoundError:
        return {}
    try:
        return dict(map(_parse, _checked(lines)))
    except ValueError as error:
        logger.warning("%s cannot be understood (%s): ask again for moves", folder / WANTED_MOVES, error)
        return {}


def _checked(lines: Sequence[str]) -> Sequence[str]:
    if len(lines) > MOVES_MAX:
        raise ValueError(f"{len(lines)} lines, and there may be {MOVES_MAX}")
    return lines


def _parse(line: str) -> tuple[TopicPartition, uuid.UUID | None]:
    topic_id, space, name = line.partition(" ")
    where = partition_of(name)
    if not space or where is None:
        raise ValueError(f"{line!r} is not the id of a topic and a partition")
    return where, None if topic_id == "-" else uuid.UUID(hex=topic_id)
