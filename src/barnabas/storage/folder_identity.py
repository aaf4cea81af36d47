"""The owner of a data folder: the lock that one process holds, and `meta.properties`, with cluster and broker id.

Besides Kafka's lines, `meta.properties` has the boot of the machine that used the folder last. Records that were not
fsynced before another boot are lost, unless the broker stopped cleanly. A broker with several folders lists all of them
there; logs in a folder that is no longer among them are lost.

Threads. The start of the broker, which uses one thread here.

Errors. DataFolderError if another process uses the folder, or it belongs to another broker or cluster.
"""

from __future__ import annotations

import errno
import logging
import os
import uuid
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from pathlib import Path

from barnabas.errors import DataFolderError
from barnabas.storage.checkpoints import MetaProperties, decode_meta_properties, encode_meta_properties, encode_uuid
from barnabas.storage.file_names import LOCK, META_PROPERTIES, is_deleted_folder, is_future_folder, partition_of
from barnabas.storage.filesystem import DataFile, FileSystem, read_file, replace_file, write_fully

logger = logging.getLogger(__name__)

NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
"""A start goes on where writes fail with these."""


def lock_folder(filesystem: FileSystem, folder: Path, process_id: int | None = None) -> DataFile:
    """Take the lock of a folder; closing the file, or the end of the process, releases it.

    :param process_id: the process that others see as the owner; None: this process.
    :raises DataFolderError: another process has it.
    :raises OSError: the disk refuses.
    """
    path = folder / LOCK
    file = filesystem.open(path, create=True)
    if not filesystem.try_lock(file):
        owner = filesystem.pread(file, 20, 0).decode("ascii", "replace").strip()
        file.close()
        raise DataFolderError(
            f"{folder} is used by another broker (process {owner or 'unknown'}); stop it or use another data folder"
        )
    try:
        filesystem.truncate(file, 0)
        write_fully(filesystem, file, [str(os.getpid() if process_id is None else process_id).encode()])
    except OSError as error:
        if error.errno not in NO_ROOM:
            file.close()  # a broker may go on without this folder
            raise
        logger.warning("%s does not say which process uses it: %s", path, error)
    return file


def known_cluster_id(filesystem: FileSystem, folders: Iterable[Path]) -> str | None:
    """Return the cluster id in one of the data folders; None if none of them has one."""
    for folder in folders:
        try:
            return decode_meta_properties(read_file(filesystem, folder / META_PROPERTIES)).cluster_id
        except (OSError, ValueError):
            continue  # `identify` reports it
    return None


def identify(
    filesystem: FileSystem,
    folder: Path,
    broker_id: int,
    cluster_id: str | None,
    new_id: Callable[[], uuid.UUID],
) -> MetaProperties | None:
    """Check that the folder is this broker's; a new one becomes its own.

    :param cluster_id: None: whatever the folder says.
    :returns: what the folder says; the boot is the one in which it was used last.
    :raises DataFolderError: it belongs to another broker or cluster, or cannot be read or written.
    """
    path = folder / META_PROPERTIES
    try:
        meta = decode_meta_properties(read_file(filesystem, path))
    except FileNotFoundError:
        if cluster_id is None:
            return None
        meta = MetaProperties(broker_id, cluster_id)
    except (OSError, ValueError) as error:
        raise DataFolderError(f"{path} cannot be understood: {error}") from error
    if meta.broker_id != broker_id:
        raise DataFolderError(
            f"{path} says broker {meta.broker_id}; this is broker {broker_id}: give it its own data folder, or its own"
            " id (--id)"
        )
    if cluster_id is not None and meta.cluster_id != cluster_id:
        raise DataFolderError(
            f"{path} says cluster {meta.cluster_id!r}; this is cluster {cluster_id!r}: give it its own data folder, or"
            " the address of its own cluster (--zookeeper)"
        )
    if meta.directory_id:
        return meta
    named = meta._replace(directory_id=encode_uuid(new_id()))
    _write(filesystem, folder, named)
    return named


def note_boot(
    filesystem: FileSystem, folder: Path, meta: MetaProperties, boot_id: str, folder_ids: Collection[str] = ()
) -> MetaProperties:
    """Note in which boot of the machine the folder is used, and with which others; return what it says now.

    :param boot_id: names the present one; empty where that is not known.
    :param folder_ids: the ids of all folders of the broker, if there are others.
    :raises DataFolderError: it cannot be written.
    """
    now = meta._replace(boot_id=boot_id, folder_ids=tuple(sorted(folder_ids)))
    if now != meta:
        _write(filesystem, folder, now)
    return now


def _write(filesystem: FileSystem, folder: Path, meta: MetaProperties) -> None:
    path = folder / META_PROPERTIES
    try:
        replace_file(filesystem, path, encode_meta_properties(meta), durable=True)
    except OSError as error:
        raise DataFolderError(f"{path} cannot be written: {error}") from error


def newest_modified_ms(filesystem: FileSystem, folders: Iterable[Path]) -> int | None:
    """Return the time of the newest file directly in the data folders, or None: when a broker wrote there last.

    A running broker replaces the checkpoints there. The folders of logs are left out, since there may be thousands.
    """
    times = []
    for folder in folders:
        with suppress(OSError):
            for name in filesystem.list_folder(folder):
                if not (partition_of(name) or is_deleted_folder(name) or is_future_folder(name)):
                    with suppress(OSError):
                        times.append(filesystem.modified_ms(folder / name))
    return max(times, default=None)
