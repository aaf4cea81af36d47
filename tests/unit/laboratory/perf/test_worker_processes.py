"""The processes of a run with several workloads."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from barnabas.laboratory.perf.worker_processes import _ctrl_c_held

CHILD = "import signal; print(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, []))"


def test_ctrl_c_during_the_start_of_a_process_arrives_after_the_start() -> None:
    reached: list[str] = []

    def start() -> None:
        with _ctrl_c_held():
            signal.raise_signal(signal.SIGINT)
            reached.append("the end of the start")
        reached.append("the next step")

    with pytest.raises(KeyboardInterrupt):
        start()
    assert reached == ["the end of the start"]


def test_started_process_ignores_ctrl_c() -> None:
    with _ctrl_c_held():
        child = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, check=True)
    assert child.stdout == "True\n"
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])
