"""Which logs are to be moved into a data folder, noted there, so that a broker that starts again goes on with it.

A file `log-moves` in the folder that they go to: a line for each, with the id of its topic. It is replaced as a whole;
one that cannot be understood is as good as none: a move can be asked for again.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from barnabas.model import TopicPartition
from barnabas.storage.file_names import WANTED_MOVES, partition_of
from barnabas.storage.filesystem import FileSystem, read_file, remove_if_there, replace_file

logger = logging.getLogger(__name__)

MOVES_MAX = 10_000
"""So many moves may be asked for at a time."""

Wanted = Mapping[TopicPartition, uuid.UUID | None]
"""What is to be moved, with the ids of the topics."""


def store_wanted_moves(filesystem: FileSystem, folder: Path, wanted: Wanted) -> None:
    """Note what is to be moved into a folder.

    :raises OSError: the disk refuses.
    """
    path = folder / WANTED_MOVES
    if wanted:
        lines = [f"{'-' if topic_id is None else topic_id.hex} {where}\n" for where, topic_id in wanted.items()]
        replace_file(filesystem, path, "".join(lines).encode(), durable=True)
    else:
        remove_if_there(filesystem, path)


def read_wanted_moves(filesystem: FileSystem, folder: Path) -> dict[TopicPartition, uuid.UUID | None]:
    """Return what was noted.

    :raises OSError: the disk refuses.
    """
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
