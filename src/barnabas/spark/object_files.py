"""Files in object stores, listed, read and removed with Arrow and pyiceberg's storage properties.

Object stores have no directories. A directory here is all objects whose names begin with its name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from pyarrow.fs import FileSelector, FileSystem


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file in storage. The table may reference it or not."""

    uri: str
    modified_at: datetime


def file_system_of(properties: Mapping[str, str], uri: str) -> tuple[FileSystem, str]:
    """Return the file system of a URI, and the path in it."""
    from pyiceberg.io.pyarrow import PyArrowFileIO

    io = PyArrowFileIO(dict(properties))
    scheme, netloc, path = io.parse_location(uri, io.properties)
    return io.fs_by_scheme(scheme, netloc), path


def files_below(properties: Mapping[str, str], uri: str) -> Iterator[StoredFile]:
    """Yield the files of a directory and its subdirectories; none if the directory does not exist.

    :raises OSError: The directory cannot be listed.
    """
    system, path = file_system_of(properties, uri)
    for info in system.get_file_info(FileSelector(path, allow_not_found=True, recursive=True)):
        if info.is_file:
            below = info.path.removeprefix(path).lstrip("/")
            yield StoredFile(f"{uri.rstrip('/')}/{below}", info.mtime or datetime.max.replace(tzinfo=UTC))


def remove_file(properties: Mapping[str, str], uri: str) -> None:
    """Remove a file.

    :raises OSError: The file cannot be removed.
    """
    system, path = file_system_of(properties, uri)
    system.delete_file(path)


def remove_below(properties: Mapping[str, str], uri: str) -> None:
    """Remove all files of a directory.

    :raises OSError: A file cannot be removed.
    """
    system, path = file_system_of(properties, uri)
    system.delete_dir(path)


def files_in(properties: Mapping[str, str], uri: str) -> list[str]:
    """Return the names of the files in a directory, without subdirectories.

    :raises OSError: The directory cannot be listed.
    """
    system, path = file_system_of(properties, uri)
    return [info.base_name for info in system.get_file_info(FileSelector(path, allow_not_found=True)) if info.is_file]


def read_text(properties: Mapping[str, str], uri: str) -> str:
    """Return the text of a file.

    :raises OSError: The file cannot be read.
    """
    system, path = file_system_of(properties, uri)
    with system.open_input_stream(path) as file:
        return bytes(file.read()).decode()
