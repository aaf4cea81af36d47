"""What has been below a leader's high watermark, byte for byte: from then on every replica in sync has to have it."""

from __future__ import annotations

from barnabas.errors import BarnabasError
from barnabas.records.header import iter_headers
from barnabas.storage import Log

READ_BYTES = 1 << 20


class Committed:
    """The records of one partition that count."""

    def __init__(self) -> None:
        self.end = 0
        """Where they end, as an offset."""
        self._data = bytearray()
        self._positions = {0: 0}
        """Where in `_data` what begins at an offset is."""
        self._same: dict[int, tuple[Log, int]] = {}
        """Up to where the log of a broker was found to be the same."""

    def go_on(self, log: Log) -> None:
        """Take over what a leader has below its high watermark.

        :raises BarnabasError: it cannot be read.
        """
        for batch in _batches(log, self.end, log.high_watermark):
            self._data += batch
        position = self._positions[self.end]
        for at, header in iter_headers(memoryview(self._data)[position:]):
            self._positions[header.next_offset] = position + at + header.size
            self.end = header.next_offset

    def cut(self, number: int, offset: int) -> None:
        """Note that a broker's log was cut to an offset."""
        if number in self._same:
            log, same = self._same[number]
            while same > offset:
                same = max((each for each in self._positions if each < same), default=0)
            self._same[number] = log, same

    def difference(self, number: int, log: Log) -> str:
        """Return what is wrong with the log of a broker that is in sync; nothing if it has all of it."""
        known, same = self._same.get(number, (None, 0))
        if known is not log:
            same = 0
        if log.log_start_offset:
            return f"begins at offset {log.log_start_offset}, and nobody has deleted what is before"
        if log.log_end_offset < self.end:
            return f"ends at offset {log.log_end_offset}, and {self.end} is where the records end that count"
        try:
            data = b"".join(_batches(log, same, self.end))
        except (BarnabasError, OSError):
            return ""  # the disk or an index is broken, which is another matter
        wanted = memoryview(self._data)[self._positions[same] :]
        if data != wanted:
            here = [(header.base_offset, header.leader_epoch) for _, header in iter_headers(data, partial_ok=True)]
            there = [(header.base_offset, header.leader_epoch) for _, header in iter_headers(wanted)]
            first = next((pair for pair in zip(here, there, strict=False) if pair[0] != pair[1]), (here[:1], there[:1]))
            return f"has other records below offset {self.end} than those that count: (offset, epoch) {first}"
        self._same[number] = log, self.end
        return ""


def wrong_epochs(log: Log) -> str:
    """Return where a log's leader epochs are others than those that its records bear; nothing if they agree."""
    try:
        batches = _batches(log, log.log_start_offset, log.log_end_offset)
    except (BarnabasError, OSError):
        return ""
    for batch in batches:
        for _, header in iter_headers(batch):
            known = log.leader_epochs.epoch_for_offset(header.base_offset)
            if known != header.leader_epoch:
                return (
                    f"thinks that offset {header.base_offset} is of epoch {known}, and it is of {header.leader_epoch}"
                )
    return ""


def _batches(log: Log, offset: int, end: int) -> list[bytes]:
    """Read whole batches from an offset on."""
    parts = []
    while offset < end and (region := log.read(offset, READ_BYTES, end).batches):
        data = bytes(log.bytes_of(region))
        parts.append(data)
        offset = max((header.next_offset for _, header in iter_headers(data)), default=end)
    return parts
