"""What stands for a log that could not be loaded: it is offline, and touches no file."""

from __future__ import annotations

from pathlib import Path

from barnabas.clock import Clock
from barnabas.model import TopicPartition
from barnabas.storage.active_segment import ActiveSegment
from barnabas.storage.checkpoints import StoredOffsets
from barnabas.storage.filesystem import DataFile, FileSystem
from barnabas.storage.leader_epochs import LeaderEpochs
from barnabas.storage.log import Log
from barnabas.storage.log_config import LogConfig
from barnabas.storage.recovery import LoadedLog


def offline_log(
    folder: Path,
    partition: TopicPartition,
    config: LogConfig,
    clock: Clock,
    filesystem: FileSystem,
    stored: StoredOffsets,
    reason: str,
) -> Log:
    """Return a log whose every use raises StorageError.

    :param stored: its offsets by the checkpoints; they are kept there.
    """
    active = ActiveSegment(filesystem, folder, max(stored), DataFile(-1, folder))
    loaded = LoadedLog([], active, LeaderEpochs(), epochs_changed=False, log_start_offset=stored.log_start_offset)
    log = Log(folder, partition, config, clock, filesystem, loaded, stored.recovery_point, offline=reason)
    log.move_high_watermark(stored.high_watermark)
    return log
