"""Parses the brokers' log lines about compaction.

For Apache Kafka, the parser expects the text of `LogCleaner` in the measured release, where an MB is 2^20 bytes. As in
Barnabas, the reported rate covers the whole rewritten log, and includes the time for the map of keys.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

MIB = 2**20

_KAFKA = re.compile(
    r"cleaned log (?P<log>\S+) \(dirty section = \[\d+, (?P<end>\d+)\]\)\s+"
    r"(?P<mib>[\d,.]+) MB of log processed in (?P<seconds>[\d,.]+) seconds \((?P<rate>[\d,.]+) MB/sec\)\..*?"
    r"Start size: [\d,.]+ MB \((?P<read>[\d,]+) messages\)\s+"
    r"End size: (?P<left_mib>[\d,.]+) MB \((?P<kept>[\d,]+) messages\)",
    re.DOTALL,
)
_BARNABAS = re.compile(
    r"(?P<log>\S+): compacted up to offset (?P<end>\d+): (?P<kept>\d+) of (?P<read>\d+) records,"
    r" (?P<left>\d+) of (?P<bytes>\d+) bytes are left, in (?P<seconds>[\d.]+) s"
)


class Account(NamedTuple):
    """The report of one cleaning of a log."""

    end_offset: int
    """The log is clean up to this offset."""
    bytes_read: float
    bytes_left: float
    records_read: int
    records_left: int
    seconds: float

    @property
    def megabytes_per_s(self) -> float:
        """The speed of the cleaning in MB/s of bytes read."""
        return self.bytes_read / self.seconds / 1e6 if self.seconds else 0.0


def of_kafka(text: str, log: str) -> list[Account]:
    """Return the reports of Apache Kafka about a log, named `topic-partition`."""
    return [_of_kafka(match) for match in _KAFKA.finditer(text) if match["log"] == log]


def _of_kafka(match: re.Match[str]) -> Account:
    number = {name: float(text.replace(",", "")) for name, text in match.groupdict().items() if name != "log"}
    # Use the rate, because it has more digits than the duration.
    seconds = number["mib"] / number["rate"] if number["rate"] else number["seconds"]
    return Account(
        int(number["end"]),
        number["mib"] * MIB,
        number["left_mib"] * MIB,
        int(number["read"]),
        int(number["kept"]),
        seconds,
    )


def of_barnabas(text: str, log: str) -> list[Account]:
    """Return the reports of Barnabas about a log, named `topic-partition`."""
    return [
        Account(
            int(match["end"]),
            float(match["bytes"]),
            float(match["left"]),
            int(match["read"]),
            int(match["kept"]),
            float(match["seconds"]),
        )
        for match in _BARNABAS.finditer(text)
        if match["log"] == log
    ]


def together(accounts: Sequence[Account]) -> Account:
    """Combine consecutive cleanings of a log. The remaining bytes come from the last cleaning."""
    last = accounts[-1]
    return Account(
        last.end_offset,
        sum(each.bytes_read for each in accounts),
        last.bytes_left,
        sum(each.records_read for each in accounts),
        last.records_left,
        sum(each.seconds for each in accounts),
    )
