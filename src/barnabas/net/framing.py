"""Cuts a stream of bytes into frames, without I/O: an int32 size, then as many bytes.

The contract: whatever the pieces that the bytes arrive in, the frames are the same. Memory is held only for
the frame that is arriving, and grows with the bytes that have come, not with the size that was announced. A caller
that trusts its peer may ask for a `get_buffer`: memory for the whole frame at once. For such callers the memory of two
large frames is kept for reuse.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable
from typing import NoReturn

from barnabas.errors import MalformedMessageError

SIZE_BYTES = 4

VACANCY_BYTES_MIN = 64 * 1024
"""Smaller frames are copied: that costs less than memory of their own."""

VACANCY_FRAME_BYTES_MAX = 64 * 1024 * 1024
"""For larger frames, memory grows as the bytes come."""

KEPT_MAX = 2
"""How many places for large frames are kept: one frame is used while the next one comes."""

KEPT_BYTES_MAX = 8 * 1024 * 1024
"""Memory larger than this is not kept."""

_PLACE_UNIT_BYTES = 1024 * 1024
"""Frames that follow each other are of nearly the same size, so a place is made a little larger than its first one."""

_SIZE = struct.Struct(">i")


class _Places:
    """Memory for large frames, reused when nothing refers to the frame any longer.

    New memory costs as much as receiving into it: it is set to zero, and the kernel has to find each page of it.
    """

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: list[bytearray] = []

    def take(self, size: int) -> memoryview:
        """Return memory of this size, with any content."""
        if size > KEPT_BYTES_MAX:
            return memoryview(bytearray(size))
        for number in range(len(self._kept)):
            # Two references are the list's and this call's own: nothing else refers to the memory.
            if sys.getrefcount(self._kept[number]) == 2 and len(self._kept[number]) >= size:
                return memoryview(self._kept[number])[:size]
        place = bytearray(-(-size // _PLACE_UNIT_BYTES) * _PLACE_UNIT_BYTES)
        self._kept = [*self._kept[1 - KEPT_MAX :], place]
        return memoryview(place)[:size]


class FrameReader:
    """Collects the frames of one connection.

    :param frame_bytes_max: a larger frame is an error.
    :param allowed: returns the same for one frame: that which is completed after so many others by the bytes that are
        fed. It is asked where a frame does not come whole with its size.

    >>> reader = FrameReader(100)
    >>> reader.feed(b"\\0\\0\\0\\2ok\\0\\0")
    [b'ok']
    >>> reader.feed(b"\\0\\1!")
    [bytearray(b'!')]
    """

    __slots__ = ("_allowed", "_filled", "_frame", "_frame_bytes_max", "_place", "_places", "_size")

    def __init__(self, frame_bytes_max: int, allowed: Callable[[int], int] | None = None) -> None:
        self._allowed = allowed
        self._frame_bytes_max = frame_bytes_max
        self._size = -1  # of the frame under way, -1 while its size is incomplete
        self._frame = bytearray()  # the frame under way, or the first bytes of its size
        self._places = _Places()
        self._place: memoryview | None = None  # of the whole frame under way, if somebody asked for it
        self._filled = 0  # how much of that has come

    @property
    def partial(self) -> bool:
        """Whether a frame has begun and not ended."""
        return self._size >= 0 or bool(self._frame)

    @property
    def held_bytes(self) -> int:
        """How much has come of the frame under way."""
        return len(self._frame) if self._place is None else self._filled

    @property
    def announced_bytes(self) -> int:
        """The size of the frame under way; 0 while it is not known."""
        return max(self._size, 0)

    def get_buffer(self, bytes_max: int = VACANCY_FRAME_BYTES_MAX) -> memoryview | None:
        """Return where the next bytes of a large frame under way belong, to receive them without a copy.

        Call `buffer_updated` with the number of bytes that came. None where no large frame is under way.

        :param bytes_max: for a larger frame, memory grows as the bytes come.
        """
        if self._place is None:
            bytes_max = min(bytes_max, VACANCY_FRAME_BYTES_MAX)
            if self._size - len(self._frame) < VACANCY_BYTES_MIN or self._size > bytes_max:
                return None
            self._place = self._places.take(self._size)
            self._filled = len(self._frame)
            self._place[: self._filled] = self._frame
            self._frame = bytearray()
        return self._place[self._filled :]

    def buffer_updated(self, size: int) -> memoryview | None:
        """Count `size` bytes as put into the vacancy; returns the frame if that completes it."""
        self._filled += size
        if self._filled < self._size:
            return None
        frame, self._place = self._place, None
        self._size, self._filled = -1, 0
        return frame

    def feed(self, data: bytes | memoryview) -> list[bytes | bytearray]:
        """Take the next bytes of the stream and return the frames that they complete.

        :raises MalformedMessageError: a size is negative or over the limit. The stream is of no use after that.
        """
        if self._size < 0 and not self._frame and len(data) >= SIZE_BYTES:
            (size,) = _SIZE.unpack_from(data)
            if SIZE_BYTES + size == len(data) and size <= self._frame_bytes_max:  # nearly always
                return [bytes(data[SIZE_BYTES:])]
        return [bytes(frame) if isinstance(frame, memoryview) else frame for frame in self.feed_views(data)]

    def feed_views(self, data: bytes | memoryview) -> list[bytearray | memoryview]:
        """Do the same without a copy of the frames that are whole in `data`: they are views of it.

        :raises MalformedMessageError: as `feed` does.
        """
        frames: list[bytearray | memoryview] = []
        position = self._finish_frame_under_way(data, frames) if self.partial else 0
        view, end = memoryview(data), len(data)
        while (begin := position + SIZE_BYTES) <= end:
            (size,) = _SIZE.unpack_from(data, position)
            if not 0 <= size <= self._frame_bytes_max:
                self._refuse(size)
            position = begin + size
            if position > end:
                self._check_allowed(size, len(frames))
                self._size = size
                self._frame = bytearray(view[begin:])
                return frames
            frames.append(view[begin:position])
        if position < end:
            self._frame += view[position:]
        return frames

    def _finish_frame_under_way(self, data: bytes | memoryview, frames: list[bytearray | memoryview]) -> int:
        """Move on with the frame that began earlier; return how many bytes that took."""
        position = 0
        if self._size < 0:
            position = min(SIZE_BYTES - len(self._frame), len(data))
            self._frame += data[:position]
            if len(self._frame) < SIZE_BYTES:
                return position
            (size,) = _SIZE.unpack_from(self._frame)
            if not 0 <= size <= self._frame_bytes_max:
                self._refuse(size)
            self._check_allowed(size, 0)
            self._size = size
            self._frame = bytearray()
        if self._place is not None:
            taken = min(self._size - self._filled, len(data) - position)
            self._place[self._filled : self._filled + taken] = data[position : position + taken]
            frame = self.buffer_updated(taken)
            frames += [] if frame is None else [frame]
            return position + taken
        taken = min(self._size - len(self._frame), len(data) - position)
        self._frame += data[position : position + taken]
        if len(self._frame) == self._size:
            frames.append(self._frame)
            self._size, self._frame = -1, bytearray()
        return position + taken

    def _check_allowed(self, size: int, number: int) -> None:
        if self._allowed is not None and size > (allowed := self._allowed(number)):
            asked = "nothing was asked for" if allowed < 0 else f"at most {allowed} were asked for"
            raise MalformedMessageError(f"a frame of {size} bytes ({asked})")

    def _refuse(self, size: int) -> NoReturn:
        raise MalformedMessageError(f"a frame of {size} bytes (at most {self._frame_bytes_max} are allowed)")
