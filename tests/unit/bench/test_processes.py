"""Programs that the bench runs: time limits, failures, CPU time."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from bench import processes
from bench.peers.activemq import used_bytes
from bench.peers.server import folder_bytes
from bench.processes import ClientError, ServerProcess, run_client


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_output_and_cpu_time_of_a_client_are_kept() -> None:
    finished = run_client(python("import sys; print('out'); print('err', file=sys.stderr); sum(range(10**6))"), 60)
    assert (finished.output, finished.errors) == ("out\n", "err\n")
    assert finished.cpu_s > 0


def test_a_client_that_fails_says_why() -> None:
    with pytest.raises(ClientError, match="exit code 1: ValueError: the reason"):
        run_client(python("raise ValueError('the reason')"), 60)


def test_a_client_that_takes_too_long_is_killed() -> None:
    with pytest.raises(ClientError, match="took longer than"):
        run_client(python("import threading; threading.Event().wait()"), 0.3)


def test_a_server_is_stopped_with_what_it_has_started(tmp_path: Path) -> None:
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()'], stdin=subprocess.PIPE)"
    server = ServerProcess(python(code), tmp_path / "log")
    assert server.is_running
    assert server.pid in processes.tree(os.getpid())
    server.stop()
    assert not server.is_running
    assert processes.tree(server.pid) == [server.pid], "nothing is left below it"


def test_the_cpu_time_of_a_tree_has_that_of_its_children() -> None:
    """In a process of its own: others of this test run may have children that come and go."""
    busy = "import time; end = time.process_time() + 0.2\nwhile time.process_time() < end: pass"
    code = f"import os, subprocess, sys; from bench import processes; subprocess.run([sys.executable, '-c', {busy!r}]);"
    finished = run_client(python(code + "print(processes.cpu_s(os.getpid()))"), 60)
    assert float(finished.output) >= 0.2


def test_the_peak_of_a_process_is_told() -> None:
    assert processes.memory_mib_max(os.getpid()) > 1


def test_what_a_journal_has_set_aside_does_not_count(tmp_path: Path) -> None:
    journal = tmp_path / "db-1.log"
    for content in (b"", b"abc", b"a\0b", b"x" * 3_000_000):
        journal.write_bytes(content + bytes(2_500_000))
        assert used_bytes(journal) == len(content)


def test_holes_of_a_file_do_not_count(tmp_path: Path) -> None:
    with (tmp_path / "index").open("wb") as file:
        file.truncate(100_000_000)
    (tmp_path / "log").write_bytes(b"x" * 5_000)
    assert folder_bytes(tmp_path) == 5_000
