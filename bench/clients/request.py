"""The request to a client program: the options of `barnabas perf` that peers support."""

from __future__ import annotations

import argparse
import json
import sys
from array import array
from dataclasses import asdict, dataclass
from typing import Any

from barnabas.clock import SYSTEM_CLOCK
from barnabas.laboratory.perf.latency_summary import summarise
from barnabas.laboratory.perf.meter import Measured, Meter
from barnabas.laboratory.perf.payloads import PayloadSpec

IDLE_LIMIT_S = 30.0
"""A consumer fails after this time without a record, so that the benchmark need not wait for its own time limit."""


@dataclass(frozen=True, slots=True)
class Request:
    """One run of a client.

    :param rate: the number of records per second.
    :param batch_records: the exact number of records per request.
    :param only: the partitions to read to their ends; None to read from all partitions until `records` are read.
    """

    action: str
    bootstrap: str
    topic: str
    records: int
    size: int
    partitions: int
    acks: str
    mode: str
    batch_records: int | None
    fetch_bytes: int | None
    rate: float | None
    only: list[int] | None

    @property
    def read_partitions(self) -> list[int]:
        """The partitions to read."""
        return self.only or list(range(self.partitions))

    @property
    def warm_up(self) -> int:
        """The number of warm-up records of `latency`: the records of one second."""
        return round(self.rate or 0)

    @property
    def host_and_port(self) -> tuple[str, int]:
        """The host and the port."""
        host, _, port = self.bootstrap.rpartition(":")
        return host, int(port)

    def values(self) -> list[bytes]:
        """Return the same payloads as in `barnabas perf`."""
        return PayloadSpec(size=self.size).values()


def parse_request(arguments: list[str] | None = None) -> Request:
    """Parse the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("action", choices=["produce", "consume", "latency"])
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--records", type=int, required=True)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--partitions", type=int, default=6)
    parser.add_argument("--acks", default="1")
    parser.add_argument("--mode", default="")
    parser.add_argument("--batch-records", type=int)
    parser.add_argument("--fetch-bytes", type=int)
    parser.add_argument("--rate", type=float)
    parser.add_argument("--only", type=_numbers)
    return Request(**vars(parser.parse_args(arguments)))


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def new_meter() -> Meter:
    return Meter(SYSTEM_CLOCK)


def require_progress(got: int, waited_s: float) -> None:
    """Fail if a consumer has waited too long without a record.

    :raises TimeoutError: if no record arrived within the limit.
    """
    if not got and waited_s > IDLE_LIMIT_S:
        raise TimeoutError(f"no record arrived for {IDLE_LIMIT_S:.0f} s")


def print_report(measured: Measured, latencies_s: array[float] | None = None) -> None:
    """Print the results as one line of JSON.

    :raises ValueError: if all records arrived before the clock started.
    """
    if not measured.records:
        raise ValueError("too few records: all of them arrived before the clock started")
    took_s = measured.elapsed_s or 1e-9
    line: dict[str, Any] = {
        "records": measured.records,
        "seconds": took_s,
        "records_per_s": measured.records / took_s,
        "mb_per_s": measured.bytes / took_s / 1e6,
        "cpu_client_s": measured.cpu_s,
        "samples": [[sample.at_s - measured.started_s, sample.records] for sample in measured.samples],
    }
    if latencies_s is not None:
        line |= asdict(summarise(latencies_s))
    sys.stdout.write(json.dumps(line) + "\n")
