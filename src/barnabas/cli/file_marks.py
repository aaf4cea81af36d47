"""How far a log file has been read, and how to recognise the file under another name.

One rule identifies a file, after a restart and while it is followed: its device and inode, its first bytes and the
bytes before the position. The inode alone is not enough: a new file gets the inode of a deleted one, and truncation
keeps it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from barnabas.cli.file_content import Content, Identity

HEAD_BYTES_MAX = 256
TAIL_BYTES_MAX = 256


@dataclass(frozen=True, slots=True)
class FileMark:
    """A position in a file, at the beginning of a line, and the fingerprints of the bytes before it.

    :param tail_bytes: how many bytes before the position `tail_sha256` covers; 0 in marks of older versions.
    :param line_count: the lines before the position; -1 where an older version made the mark.
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
        """Device and inode, which a rename keeps."""
        return self.device, self.inode

    def is_of(self, content: Content) -> bool:
        """Return whether a file has the bytes that the mark was made of; the inode does not count.

        :raises UnreadableFileError: the file is damaged before the position.
        """
        if not self.has_head_of(content):
            return False
        if not self.tail_bytes:
            return not self.position or bool(content.read_at(self.position - 1, 1))
        tail = content.read_at(self.position - self.tail_bytes, self.tail_bytes)
        return sha256(tail) == self.tail_sha256

    def has_head_of(self, content: Content) -> bool:
        """Return whether a file begins with the first bytes of the mark's file."""
        return sha256(content.read_at(0, self.head_bytes)) == self.head_sha256

    def is_end_of(self, content: Content) -> bool:
        """Return whether a file has the bytes that the mark was made of, and no more."""
        return self.is_of(content) and not content.read_at(self.position, 1)


def sha256(data: bytes) -> str:
    """Return the digest in hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()
