"""What a run of confluent-kafka's clients tells of itself."""

import json
import struct
import subprocess
from typing import Any

import pytest

from bench.clients import confluent
from bench.clients.request import parse_request

SENDERS_CPU_S = 5_000.0
DUE = struct.pack("<q", 0)


class _Sender:
    """Stands for the process that sends."""

    def __init__(self, *_: object, **__: object) -> None:
        """Whatever it is started with."""

    def communicate(self, timeout: float) -> tuple[str, None]:
        return f"{SENDERS_CPU_S}\n", None


class _Message:
    def value(self) -> bytes:
        return DUE


class _Consumer:
    """Has a message whenever it is asked."""

    def consume(self, _count: int, _timeout_s: float) -> list[_Message]:
        return [_Message()]

    def close(self) -> None:
        """Nothing is open."""


def test_the_cpu_time_of_a_run_for_latency_has_that_of_the_sender_in_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def assigned(_request: Any) -> _Consumer:
        return _Consumer()

    monkeypatch.setattr(subprocess, "Popen", _Sender)
    monkeypatch.setattr(confluent, "assigned_consumer", assigned)
    latency = ["latency", "--bootstrap", "localhost:1", "--topic", "t", "--records", "20", "--rate", "10"]
    confluent.latency(parse_request(latency))
    report = json.loads(capsys.readouterr().out)
    assert report["count"] == 20
    assert SENDERS_CPU_S < report["cpu_client_s"] < SENDERS_CPU_S + 100
