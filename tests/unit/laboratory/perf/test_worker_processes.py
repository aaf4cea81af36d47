"""The processes of a run with several workloads."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.laboratory.perf.worker_processes import _ctrl_c_held

FIRST_PROCESS = """
import multiprocessing, signal

from barnabas.laboratory.perf.worker_processes import _ctrl_c_held

def main(pipe):
    pipe.send(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, []))

if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=main, args=(theirs,))
    with _ctrl_c_held():
        process.start()
    print(ours.recv(), signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, []))
    process.join()
"""


@pytest.fixture
def _usual_ctrl_c() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_usual_ctrl_c")
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


def test_ctrl_c_does_not_reach_the_first_process(tmp_path: Path) -> None:
    program = tmp_path / "first.py"
    program.write_text(FIRST_PROCESS)
    ended = subprocess.run([sys.executable, program], capture_output=True, text=True, check=False)
    assert (ended.stdout, ended.stderr) == ("True False\n", "")
