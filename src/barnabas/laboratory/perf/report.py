"""The report of a run: figures for programs, with the machine, the broker and the run's parameters."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from barnabas import __version__
from barnabas.laboratory.perf.meter import Measured
from barnabas.records.codec import CODEC

SAMPLE_DECIMALS = 3


@dataclass(frozen=True, slots=True)
class Report:
    """The result of one run.

    :param about: the parameters of the run: topic, mode, acks ...
    :param extra: figures that only some runs have.
    :param records_per_s: the rate, if it differs from the rate of `measured`.
    :param interrupted: True if Ctrl-C ended the run.
    """

    workload: str
    broker: str
    measured: Measured
    about: Mapping[str, Any]
    extra: Mapping[str, Any] = field(default_factory=dict)
    records_per_s: float | None = None
    interrupted: bool = False

    def as_json(self) -> dict[str, Any]:
        """Return all fields, ready for JSON."""
        measured = self.measured
        rate = per_second(measured.records, measured.elapsed_s) if self.records_per_s is None else self.records_per_s
        mean_bytes = measured.bytes / measured.records if measured.records else 0.0
        return {
            "workload": self.workload,
            "records": measured.records,
            "records_per_s": round(rate, 1),
            "mb_per_s": round(rate * mean_bytes / 1e6, 3),
            "cpu_client_s": round(measured.cpu_s, 4),
            "elapsed_s": round(measured.elapsed_s, 6),
            "bytes": measured.bytes,
            **self.extra,
            **self.about,
            "interrupted": self.interrupted,
            "broker": self.broker,
            "client": f"barnabas {__version__}",
            "machine": machine_facts(),
            "samples": _samples(measured),
        }


def per_second(count: float, seconds: float) -> float:
    """Return a rate; 0 if no time has passed.

    >>> per_second(10, 4), per_second(0, 0.0)
    (2.5, 0.0)
    """
    return count / seconds if seconds > 0 else 0.0


def _samples(measured: Measured) -> list[tuple[float, int]]:
    return [(round(sample.at_s - measured.started_s, SAMPLE_DECIMALS), sample.records) for sample in measured.samples]


def machine_facts() -> dict[str, Any]:
    """Return the facts about the machine and the interpreter that affect the figures."""
    return {
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "cpu": platform.machine(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "codec": CODEC,
    }
