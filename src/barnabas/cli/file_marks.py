"""Read positions in log files, with fingerprints that identify a file even after a rename.

A file is identified by its device and inode, its first bytes, and the bytes before the position. The inode alone is not
sufficient: a new file can get the inode of a deleted one, and truncation keeps the inode.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from barnabas.cli.file_content import Content, Identity

HEAD_BYTES_MAX = 256
TAIL_BYTES_MAX = 256


@dataclass(frozen=True, slots=True)
class FileMark:
    """A read position at the beginning of a line, with fingerprints of the bytes before the position.

    :param tail_bytes: number of bytes before the position that `tail_sha256` covers; 0 in marks of older versions.
    :param line_count: number of lines before the position; -1 in marks of older versions.
    """

    device: int
    inode: int
    head_bytes: int
    head_sha256: str
    position: int
    tail_bytes: int = 0
    tail_sha256: str = ""
    line_count: int = -1

    @property
    def identity(self) -> Identity:
        """The device and inode of the file. A rename does not change them."""
        return self.device, self.inode

    def is_of(self, content: Content) -> bool:
        """Return whether a file starts with the bytes that precede the mark, whatever its inode.

        :raises UnreadableFileError: the file is damaged before the position.
        """
        if not self.has_head_of(content):
            return False
        if not self.tail_bytes:
            return not self.position or bool(content.read_at(self.position - 1, 1))
        tail = content.read_at(self.position - self.tail_bytes, self.tail_bytes)
        return sha256(tail) == self.tail_sha256

    def has_head_of(self, content: Content) -> bool:
        """Return whether a file has the same first bytes as the mark's file."""
        return sha256(content.read_at(0, self.head_bytes)) == self.head_sha256

    def is_end_of(self, content: Content) -> bool:
        """Return whether a file consists of exactly the bytes that precede the mark."""
        return self.is_of(content) and not content.read_at(self.position, 1)


def sha256(data: bytes) -> str:
    """Return the SHA-256 digest in hexadecimal."""
    return hashlib.sha256(data).hexdigest()
