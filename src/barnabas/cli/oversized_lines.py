"""Lines above the record size limit: skipped, split or refused, and reported with file and line number."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from barnabas.cli.file_tail import Piece
from barnabas.errors import ApiError, BarnabasError
from barnabas.model import Header

if TYPE_CHECKING:
    from barnabas import Admin

MODES = ("skip", "split", "fail")
REPORTS_MAX = 100
"""The maximum number of reported lines; further lines are only counted."""
REQUEST_BYTES_MAX = 1_048_576
"""The default of max.request.size. Together with the size of a batch header, it is also the default of
max.message.bytes."""
OVERHEAD_BYTES = 256
"""The maximum number of bytes that a batch of one record has in addition to the key, value and headers."""
HEADER_OVERHEAD_BYTES = 10


class OversizedLineError(BarnabasError):
    """A line exceeds the record size limit in the mode `fail`."""


def record_bytes_max(
    admin: Admin, topic: str, properties: Mapping[str, str], key: str | None, headers: Sequence[Header]
) -> tuple[int, int]:
    """Return the size limits of a line, from the producer's settings and the topic's max.message.bytes.

    :returns: the maximum size that the producer sends, and the maximum size that the broker accepts without
    compression.
    """
    given = properties.get("max.request.size", properties.get("max_request_size", REQUEST_BYTES_MAX))
    limit = int(given) if str(given).isdigit() else REQUEST_BYTES_MAX  # the producer rejects an invalid number
    taken = limit
    try:
        setting = admin.describe_config(topic).get("max.message.bytes")
    except ApiError:
        setting = None  # a user with write permission may lack the permission to describe the settings
    if setting is not None and setting.value is not None:
        taken = min(limit, int(setting.value))
    of_headers = sum(len(name.encode()) + len(value or b"") + HEADER_OVERHEAD_BYTES for name, value in headers)
    others = OVERHEAD_BYTES + len((key or "").encode()) + of_headers
    sent = taken if properties.get("compression.type", "none") == "none" else limit
    return max(1, sent - others), max(1, taken - others)


class OversizedLines:
    """Removes or splits lines larger than `bytes_max`.

    :param mode: `skip`, `split` or `fail`.
    :param report: called with a message for each such line.
    :param taken_bytes_max: the maximum size that the broker accepts without compression; None: `bytes_max`.
    """

    def __init__(
        self, bytes_max: int, mode: str, report: Callable[[str], None], taken_bytes_max: int | None = None
    ) -> None:
        assert mode in MODES, mode
        self._taken_bytes_max = bytes_max if taken_bytes_max is None else taken_bytes_max
        self._bytes_max = bytes_max
        self._mode = mode
        self._report = report
        self.count = 0

    def fitting(self, piece: Piece, lines: list[bytes]) -> tuple[list[bytes], list[int] | None]:
        """Return the values to send; if lines are omitted or split, also return the index of the line of each value.

        :param lines: the lines of the piece, possibly without carriage returns.
        :raises OversizedLineError: a line is too large and the mode is `fail`.
        """
        if max(map(len, lines), default=0) <= self._bytes_max:
            return lines, None
        values: list[bytes] = []
        places: list[int] = []
        for at, line in enumerate(lines):
            parts = self.parts(piece, at, line) if len(line) > self._bytes_max else [line]
            values += parts
            places += [at] * len(parts)
        return values, places

    def may_be_refused(self, line: bytes) -> bool:
        """Return whether the broker may refuse a line: without compression, it exceeds the broker's limit."""
        return len(line) > self._taken_bytes_max

    def parts(self, piece: Piece, at: int, line: bytes) -> list[bytes]:
        """Report an oversized line, and return the values to send instead.

        :param at: the index of the line in the piece.
        :raises OversizedLineError: the mode is `fail`.
        """
        position = piece.start + sum(map(len, piece.lines[:at])) + at
        number = f"line {piece.first_line + at:,} " if piece.first_line else "a line "
        most = f"the {self._bytes_max:,} bytes" if len(line) > self._bytes_max else "what"
        text = (
            f"{piece.path}: {number}at byte {position:,} has {len(line):,} bytes, more than {most} that "
            "max.request.size and the topic's max.message.bytes allow"
        )
        if self._mode == "fail":
            raise OversizedLineError(f"{text}; raise both, or give --oversized skip or split")
        self.count += 1
        parts: list[bytes] = []
        if self._mode == "split":
            size = self._taken_bytes_max
            parts = [line[start : start + size] for start in range(0, len(line), size)]
        if self.count <= REPORTS_MAX:
            self._report(f"{text}; {f'split into {len(parts):,} records' if parts else 'skipped'}")
        return parts
