"""The folder of a log that counts, where a start finds more than one, or perhaps an old one only.

Invariants. Two notes decide. A log's folder has `.moved-by-broker`: the data folders whose logs of this partition it
replaces, because they moved here, or were offline when this one was made. Those folders do not count. A data folder has
`logs-moved-away`: the logs that are moving from there, or have moved, and where to. This note is written before the
move counts. So a log with such a note, whose new data folder is not here, is perhaps an old copy.

Threads. The start of the broker, which uses one thread here.

Errors. OSError if a folder cannot be read.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple

from barnabas.errors import StorageError
from barnabas.model import TopicPartition

if TYPE_CHECKING:
    from barnabas.storage.log_config import LogConfig
    from barnabas.storage.log_manager import LogManager

logger = logging.getLogger(__name__)


class SupersededLog(NamedTuple):
    """A log that may have a newer copy in a data folder that is not here."""

    manager: LogManager
    target_id: str
    """The id of that folder."""

    def use(self, partition: TopicPartition, config: LogConfig | None) -> None:
        """Load the log as one that has lost its end, since the other folder is lost.

        :raises DataFolderError: files or memory are short.
        """
        logger.error(
            "%s: it was moved to the data folder with the id %s, which is lost; what %s has is used, perhaps older",
            partition, self.target_id, self.manager.data_dir,
        )  # fmt: skip
        self.manager.load_one(partition, config)
        if (log := self.manager.get(partition)) is not None and log.lost_from is None:
            log.note_loss(log.log_end_offset)


def finish_moves(contested: dict[TopicPartition, list[LogManager]]) -> None:
    """Rename the replaced logs; those that stay in `contested` cannot be decided."""
    for partition, managers in list(contested.items()):
        try:
            if _end_move(partition, managers):
                del contested[partition]
        except (OSError, StorageError) as error:
            logger.warning("%s: its move cannot be ended: %s", partition, error)


def _end_move(partition: TopicPartition, managers: Sequence[LogManager]) -> bool:
    replaced = {manager.folder_id: set(manager.moved.moved_from(partition)) for manager in managers}
    newest = [each for each in managers if replaced.keys() - {each.folder_id} <= replaced[each.folder_id]]
    if len(newest) != 1:
        return False
    (target,) = newest
    if target.life.old_copy is not None:
        return False  # an older copy of a data folder may have the note of a move that others have followed since
    for manager in managers:
        if manager is not target:
            logger.info("%s in %s is older than in %s", partition, manager.data_dir, target.data_dir)
            manager.moved.release(partition)
    target.moved.note_replaced(partition, replaced[target.folder_id] - replaced.keys())
    return True


def find_superseded_logs(
    manager: LogManager, managers: Collection[LogManager], contested: Collection[TopicPartition]
) -> dict[TopicPartition, SupersededLog]:
    """Return the logs of a folder that may have a newer copy in a folder that is not here.

    :param managers: of all present folders.
    :raises OSError: the disk refuses.
    """
    found = {}
    here = {each.folder_id for each in managers}
    for partition, target_id in manager.moved.read_leaving().items():
        if not manager.moved.has_folder(partition) or (target_id in here and partition not in contested):
            # The log has left, or the target folder has no part of it.
            manager.moved.forget_leaving(partition)
        elif target_id not in here:
            found[partition] = SupersededLog(manager, target_id)
    return found
