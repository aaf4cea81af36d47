"""What a client program is asked to do: the flags of `barnabas perf`, as far as peers can follow them."""

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
"""A consumer that gets nothing for so long gives up, instead of running into the limit of the bench."""


@dataclass(frozen=True, slots=True)
class Request:
    """One run of a client.

    `rate` is per second; `batch_records` asks for exactly so many records a request.

    :param only: the partitions to read, to their ends; None: all, until `records` are there.
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
        """How many records of `latency` do not count, before those that do: one second of them."""
        return round(self.rate or 0)

    @property
    def host_and_port(self) -> tuple[str, int]:
        """The address in two parts."""
        host, _, port = self.bootstrap.rpartition(":")
        return host, int(port)

    def values(self) -> list[bytes]:
        """Return the payloads, the same that `barnabas perf` sends."""
        return PayloadSpec(size=self.size).values()


def parse_request(arguments: list[str] | None = None) -> Request:
    """Return what the command line asks for."""
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
    """Return a meter of this process."""
    return Meter(SYSTEM_CLOCK)


def require_progress(got: int, waited_s: float) -> None:
    """End a consumer that waits in vain.

    :raises TimeoutError: nothing came for too long.
    """
    if not got and waited_s > IDLE_LIMIT_S:
        raise TimeoutError(f"nothing came for {IDLE_LIMIT_S:.0f} s")


def print_report(measured: Measured, latencies_s: array[float] | None = None) -> None:
    """Print the line of JSON.

    :raises ValueError: all came at once, before the clock had started.
    """
    if not measured.records:
        raise ValueError("too few records to measure anything")
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
