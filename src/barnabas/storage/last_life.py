"""When a broker last wrote into its data folders, before this start."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from barnabas.storage.file_names import is_deleted_folder, is_future_folder, partition_of
from barnabas.storage.filesystem import FileSystem


def newest_modified_ms(filesystem: FileSystem, folders: Iterable[Path]) -> int | None:
    """Return the time of the newest file directly in the data folders; None if there is no file.

    The checkpoints are there, which a running broker replaces. The folders of logs are not looked into: there may be
    thousands.
    """
    times = []
    for folder in folders:
        with suppress(OSError):
            for name in filesystem.list_folder(folder):
                if not (partition_of(name) or is_deleted_folder(name) or is_future_folder(name)):
                    with suppress(OSError):
                        times.append(filesystem.modified_ms(folder / name))
    return max(times, default=None)
