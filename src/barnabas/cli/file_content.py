"""Random access to the content of a log file that may be compressed.

The first bytes of a file, not its name, decide how the file is read: `PlainContent` reads with `pread`; `PackedContent`
decompresses only as far as needed, so its memory use does not depend on the file size. Positions count uncompressed
bytes.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import re
import stat
import tempfile
import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol, cast

from barnabas.errors import BarnabasError
from barnabas.portable import pread

MAGIC_BYTES = 16
Identity = tuple[int, int]
"""The device and inode of a file."""

_PACKED: Mapping[str, re.Pattern[bytes]] = {
    "gzip": re.compile(rb"\x1f\x8b\x08"),
    "bzip2": re.compile(rb"BZh[1-9](?:1AY&SY|\x17\x72\x45\x38\x50\x90)"),
    "xz": re.compile(rb"\xfd7zXZ\x00"),
    "zstd": re.compile(rb"\x28\xb5\x2f\xfd"),
    "lz4": re.compile(rb"\x04\x22\x4d\x18"),
}
_REFUSED: Mapping[str, re.Pattern[bytes]] = {
    "zip": re.compile(rb"PK\x03\x04"),
    "7z": re.compile(rb"7z\xbc\xaf\x27\x1c"),
    "compress": re.compile(rb"\x1f[\x9d\xa0]"),
    "snappy": re.compile(rb"\xff\x06\x00\x00sNaPpY"),
}


class UnreadableFileError(BarnabasError):
    """A file is not a regular file, has an unsupported format, or has damaged compressed data."""


class Content(Protocol):
    """The uncompressed bytes of an open file."""

    @property
    def identity(self) -> Identity: ...

    @property
    def is_packed(self) -> bool: ...

    def read_at(self, position: int, count: int) -> bytes:
        """Return `count` bytes starting at `position`, or fewer at the end of the file.

        :raises UnreadableFileError: the compressed data are damaged or truncated.
        """
        ...

    def read_some(self, position: int, count: int) -> bytes:
        """Return between 1 and `count` bytes starting at `position`, or no bytes at the end of the file.

        :raises UnreadableFileError: the compressed data are damaged or truncated.
        """
        ...

    def has_changed(self) -> bool:
        """Return whether the file may have changed since the last call."""
        ...

    def bytes_from(self, position: int) -> int:
        """Return the approximate number of bytes from `position` to the end."""
        ...

    def modified_at_ns(self) -> int: ...

    def is_linked(self) -> bool:
        """Return whether the file still has a name in the file system."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class _Stamp:
    size: int
    modified_at_ns: int


def packed_kind(first_bytes: bytes) -> str | None:
    r"""Return the compression format that the first bytes indicate; None for plain text.

    >>> packed_kind(b"\x1f\x8b\x08\x00"), packed_kind(b"10.0.0.1 - -")
    ('gzip', None)
    """
    kinds = {**_PACKED, **_REFUSED}
    return next((kind for kind, magic in kinds.items() if magic.match(first_bytes)), None)


def open_content(path: Path) -> Content:
    """Open a file and detect its compression by its first bytes.

    :raises UnreadableFileError: the path is not a regular file, or its format is unsupported.
    :raises OSError: the file cannot be opened.
    """
    if not stat.S_ISREG(path.stat().st_mode):
        raise UnreadableFileError(f"{path}: not a regular file; pipe its lines into `barnabas produce`")
    file = path.open("rb", buffering=0)
    kind = packed_kind(pread(file.fileno(), MAGIC_BYTES, 0))
    if kind in _REFUSED:
        file.close()
        raise UnreadableFileError(
            f"{path}: unsupported compression format {kind}; decompress the file and ship the result"
        )
    return PlainContent(path, file) if kind is None else PackedContent(path, file, kind)


class PlainContent:
    """An uncompressed file. Not thread-safe."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self._path = path
        self._file = file
        status = os.fstat(file.fileno())
        self.identity: Identity = (status.st_dev, status.st_ino)
        self.is_packed = False

    def read_at(self, position: int, count: int) -> bytes:
        return pread(self._file.fileno(), count, position) if count else b""

    read_some = read_at

    def has_changed(self) -> bool:
        return True

    def bytes_from(self, position: int) -> int:
        return max(0, os.fstat(self._file.fileno()).st_size - position)

    def modified_at_ns(self) -> int:
        return os.fstat(self._file.fileno()).st_mtime_ns

    def is_linked(self) -> bool:
        return os.fstat(self._file.fileno()).st_nlink > 0

    def close(self) -> None:
        self._file.close()


class PackedContent:
    """A compressed file, decompressed while it is read. Reading backwards decompresses again from the start."""

    def __init__(self, path: Path, file: BinaryIO, kind: str) -> None:
        status = os.fstat(file.fileno())
        self.identity: Identity = (status.st_dev, status.st_ino)
        self.is_packed = True
        self._path = path
        self._file = file
        self._kind = kind
        self._stamp = self._stamp_now()
        self._stream: BinaryIO | None = None
        self._position = 0
        self._damage: str | None = None

    def read_at(self, position: int, count: int) -> bytes:
        parts: list[bytes] = []
        while count and (part := self.read_some(position, count)):
            parts.append(part)
            position += len(part)
            count -= len(part)
        return b"".join(parts)

    def read_some(self, position: int, count: int) -> bytes:
        try:
            stream = self._stream_at(position)
            part = _read1(stream, count)
        except (EOFError, OSError, zlib.error, lzma.LZMAError, ValueError) as error:
            raise self._damaged(str(error)) from None
        self._position += len(part)
        if not part and self._damage is not None:
            raise self._damaged(self._damage)
        return part

    def has_changed(self) -> bool:
        stamp = self._stamp_now()
        if stamp == self._stamp:
            return False
        self._stamp = stamp
        self._forget_stream()
        return True

    def bytes_from(self, position: int) -> int:
        return 0 if position else self._stamp.size

    def modified_at_ns(self) -> int:
        return os.fstat(self._file.fileno()).st_mtime_ns

    def is_linked(self) -> bool:
        return os.fstat(self._file.fileno()).st_nlink > 0

    def close(self) -> None:
        self._forget_stream()
        self._file.close()

    def _stamp_now(self) -> _Stamp:
        status = os.fstat(self._file.fileno())
        return _Stamp(status.st_size, status.st_mtime_ns)

    def _stream_at(self, position: int) -> BinaryIO:
        if self._stream is None or position < self._position:
            self._forget_stream()
            self._stream = self._unpacked()
            self._position = 0
        while self._position < position:
            part = _read1(self._stream, min(position - self._position, 1 << 20))
            if not part:
                break
            self._position += len(part)
        return self._stream

    def _unpacked(self) -> BinaryIO:
        self._file.seek(0)
        self._damage = None
        if self._kind == "gzip":
            return cast("BinaryIO", gzip.GzipFile(fileobj=self._file, mode="rb"))
        if self._kind == "bzip2":
            return cast("BinaryIO", bz2.BZ2File(self._file, "rb"))
        if self._kind == "xz":
            return cast("BinaryIO", lzma.LZMAFile(self._file, "rb"))
        return self._unpacked_to_disk()

    def _unpacked_to_disk(self) -> BinaryIO:
        """Decompress into an unnamed temporary file, because cramjam has no streaming reader."""
        import cramjam

        codec = cramjam.zstd if self._kind == "zstd" else cramjam.lz4
        with tempfile.NamedTemporaryFile(prefix="barnabas-ship-") as target:
            try:
                source = cramjam.File(f"/dev/fd/{self._file.fileno()}")
                codec.decompress_into(source, cramjam.File(target.name))
            except cramjam.DecompressionError as error:
                self._damage = str(error)
            return Path(target.name).open("rb")

    def _forget_stream(self) -> None:
        if self._stream is not None:
            with suppress(OSError):
                self._stream.close()
            self._stream = None

    def _damaged(self, why: str) -> UnreadableFileError:
        self._forget_stream()
        reason = " ".join(why.split()) or "unknown"
        return UnreadableFileError(f"{self._path}: the {self._kind} data are damaged or truncated: {reason}")


def _read1(stream: BinaryIO, count: int) -> bytes:
    """Return the bytes of one decompression step; `read` would discard the bytes before damaged data."""
    read1 = getattr(stream, "read1", None)
    part = stream.read(count) if read1 is None else read1(count)
    assert isinstance(part, bytes)
    return part
