"""The owner of a data directory: the lock file, and `meta.properties` with the cluster id and the broker id.

In addition to Kafka's lines, `meta.properties` contains the id of the machine's boot when the directory was last used.
If the id differs at start, the machine has rebooted, and records that were not fsynced may be lost, unless the broker
stopped cleanly. If a broker has several data directories, the file lists the ids of all directories. So a start detects
that a directory is missing.

Threads. Only one thread uses this module, during the start of the broker.

Errors. DataFolderError is raised if another process uses the directory, or if the directory belongs to another broker
or cluster.
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
"""The error numbers of a full disk. A start continues if a write fails with one of them."""


def lock_folder(filesystem: FileSystem, folder: Path, process_id: int | None = None) -> DataFile:
    """Acquire the lock of a data directory. Closing the file, or the end of the process, releases the lock.

    :param process_id: the process id to write to the lock file. Other processes report it as the owner. By default, it
        is the id of this process.
    :raises DataFolderError: another process holds the lock.
    :raises OSError: the file system returned an error.
    """
    path = folder / LOCK
    file = filesystem.open(path, create=True)
    if not filesystem.try_lock(file):
        owner = filesystem.pread(file, 20, 0).decode("ascii", "replace").strip()
        file.close()
        raise DataFolderError(
            f"{folder} is used by another broker (process {owner or 'unknown'}); stop it or use another data directory"
        )
    try:
        filesystem.truncate(file, 0)
        write_fully(filesystem, file, [str(os.getpid() if process_id is None else process_id).encode()])
    except OSError as error:
        if error.errno not in NO_ROOM:
            file.close()  # the broker may continue without this directory, so release the lock
            raise
        logger.warning("cannot write the process id to lock file %s: %s; the lock is held", path, error)
    return file


def known_cluster_id(filesystem: FileSystem, folders: Iterable[Path]) -> str | None:
    """Return the cluster id in the first readable `meta.properties` of the data directories, or None."""
    for folder in folders:
        try:
            return decode_meta_properties(read_file(filesystem, folder / META_PROPERTIES)).cluster_id
        except (OSError, ValueError):
            continue  # `identify` reports this error
    return None


def identify(
    filesystem: FileSystem,
    folder: Path,
    broker_id: int,
    cluster_id: str | None,
    new_id: Callable[[], uuid.UUID],
) -> MetaProperties | None:
    """Check that the data directory belongs to this broker; write `meta.properties` of a new directory.

    :param cluster_id: the expected cluster id; None accepts any cluster id.
    :returns: the content of `meta.properties`. Its boot id belongs to the last use of the directory.
    :raises DataFolderError: the directory belongs to another broker or cluster, or cannot be read or written.
    """
    path = folder / META_PROPERTIES
    try:
        meta = decode_meta_properties(read_file(filesystem, path))
    except FileNotFoundError:
        if cluster_id is None:
            return None
        meta = MetaProperties(broker_id, cluster_id)
    except (OSError, ValueError) as error:
        raise DataFolderError(f"cannot read {path}: {error}") from error
    if meta.broker_id != broker_id:
        raise DataFolderError(
            f"{path} belongs to broker {meta.broker_id}, not to broker {broker_id}: use another data directory, or"
            " another id (--id)"
        )
    if cluster_id is not None and meta.cluster_id != cluster_id:
        raise DataFolderError(
            f"{path} belongs to cluster {meta.cluster_id!r}, not to {cluster_id!r}: use another data directory, or"
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
    """Store the id of the current boot and the ids of the broker's data directories; return the new content.

    :param boot_id: the id of the current boot, or an empty string if it is unknown.
    :param folder_ids: the ids of all data directories of the broker; empty if there is only one.
    :raises DataFolderError: the file cannot be written.
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
        raise DataFolderError(f"cannot write {path}: {error}") from error


def newest_modified_ms(filesystem: FileSystem, folders: Iterable[Path]) -> int | None:
    """Return the latest modification time of the files at the top level of the data directories, or None.

    A running broker regularly replaces the checkpoints there, so the result is about the time at which the broker last
    ran. Partition directories are skipped, because there may be thousands.
    """
    times = []
    for folder in folders:
        with suppress(OSError):
            for name in filesystem.list_folder(folder):
                if not (partition_of(name) or is_deleted_folder(name) or is_future_folder(name)):
                    with suppress(OSError):
                        times.append(filesystem.modified_ms(folder / name))
    return max(times, default=None)
