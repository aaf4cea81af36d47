"""Lines that are larger than a record may be: skipped, split or refused, and always reported with file and line."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from barnabas.cli.tailing import Piece
from barnabas.errors import BarnabasError, KafkaError
from barnabas.model import Header

if TYPE_CHECKING:
    from barnabas import Admin

MODES = ("skip", "split", "fail")
REPORTS_MAX = 100
"""Further lines are only counted."""
REQUEST_BYTES_MAX = 1_048_576
"""The default of max.request.size, and of max.message.bytes without the batch's header."""
OVERHEAD_BYTES = 256
"""What a batch of one record adds to its key, value and headers, with room to spare."""
HEADER_OVERHEAD_BYTES = 10


class OversizedLineError(BarnabasError):
    """A line is larger than a record may be, and is not to be skipped or split."""


def record_bytes_max(
    admin: Admin, topic: str, properties: Mapping[str, str], key: str | None, headers: Sequence[Header]
) -> int:
    """Return the bytes that a line may have, by the producer's settings and the topic's max.message.bytes."""
    given = properties.get("max.request.size", properties.get("max_request_size", REQUEST_BYTES_MAX))
    limit = int(given) if str(given).isdigit() else REQUEST_BYTES_MAX  # the producer refuses what is no number
    if properties.get("compression.type", "none") == "none":
        try:
            setting = admin.describe_config(topic).get("max.message.bytes")
        except KafkaError:
            setting = None  # a user may be allowed to write to a topic, and not to read its settings
        if setting is not None and setting.value is not None:
            limit = min(limit, int(setting.value))
    of_headers = sum(len(name.encode()) + len(value or b"") + HEADER_OVERHEAD_BYTES for name, value in headers)
    return max(1, limit - OVERHEAD_BYTES - len((key or "").encode()) - of_headers)


class OversizedLines:
    """Takes the lines out of pieces that are larger than `bytes_max`.

    :param mode: `skip`, `split` or `fail`.
    :param report: gets a line for each.
    """

    def __init__(self, bytes_max: int, mode: str, report: Callable[[str], None]) -> None:
        assert mode in MODES, mode
        self._bytes_max = bytes_max
        self._mode = mode
        self._report = report
        self.count = 0

    def fitting(self, piece: Piece, lines: list[bytes]) -> tuple[list[bytes], list[bytes] | None]:
        """Return the values to send, and the lines that they are of where that is not the same.

        :param lines: those of the piece, perhaps without carriage returns.
        :raises OversizedLineError: a line is too large, and the mode is `fail`.
        """
        if max(map(len, lines), default=0) <= self._bytes_max:
            return lines, None
        values: list[bytes] = []
        whole: list[bytes] = []
        position = piece.start
        for at, line in enumerate(lines):
            parts = self._parts(piece, at, position, line) if len(line) > self._bytes_max else [line]
            values += parts
            whole += [line] * len(parts)
            position += len(piece.lines[at]) + 1
        return values, whole

    def _parts(self, piece: Piece, at: int, position: int, line: bytes) -> list[bytes]:
        number = f"line {piece.first_line + at:,} " if piece.first_line else "a line "
        text = (
            f"{piece.path}: {number}at byte {position:,} has {len(line):,} bytes, more than the {self._bytes_max:,} "
            "that max.request.size and the topic's max.message.bytes allow"
        )
        if self._mode == "fail":
            raise OversizedLineError(f"{text}; raise both, or give --oversized skip or split")
        self.count += 1
        parts: list[bytes] = []
        if self._mode == "split":
            parts = [line[start : start + self._bytes_max] for start in range(0, len(line), self._bytes_max)]
        if self.count <= REPORTS_MAX:
            self._report(f"{text}; {f'split into {len(parts):,} records' if parts else 'skipped'}")
        return parts
