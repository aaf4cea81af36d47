"""A broker, clients and commands run without what only Linux or Unix has: the alternatives for macOS and Windows.

Each process loads `tests/programs/other_platform/sitecustomize.py`, which takes the system calls away. This shows that
the alternatives work, not that those platforms do (docs/reference/operating-systems.md).
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas import portable

FOLDER = Path(__file__).resolve().parents[1] / "programs" / "other_platform"
SRC = Path(__file__).resolve().parents[2] / "src"
ENVIRONMENT = {**os.environ, "PYTHONPATH": f"{FOLDER}{os.pathsep}{SRC}"}
COMMAND = [sys.executable, "-m", "barnabas.cli.main"]
TIMEOUT_S = 60


def run(*arguments: object, given: str = "") -> str:
    done = subprocess.run(
        [*COMMAND, *map(str, arguments)],
        input=given,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextlib.contextmanager
def broker(folder: Path, port: int = 0) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Start a broker without the system calls; yield its process and its address."""
    arguments = ["up", "--port", str(port), "--data", str(folder / "data"), "-X", "log.segment.bytes=100000"]
    with (folder / "log").open("a") as log:
        process = subprocess.Popen(
            [*COMMAND, *arguments], env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=log, text=True
        )
    try:
        assert process.stdout
        yield process, process.stdout.readline().removeprefix("ready ").strip()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_program_takes_the_system_calls_away() -> None:
    program = "import os\ntry: import fcntl\nexcept ImportError: print(hasattr(os, 'pread'), hasattr(os, 'fork'))"
    done = subprocess.run([sys.executable, "-c", program], env=ENVIRONMENT, capture_output=True, text=True, check=True)
    assert done.stdout == "False False\n"


def test_broker_keeps_records_over_a_clean_stop(tmp_path: Path) -> None:
    lines = "".join(f"{number} {'x' * 300}\n" for number in range(2_000))  # several segments, and large regions
    with broker(tmp_path) as (process, address):
        run("-b", address, "produce", "clicks", given=lines)
        process.terminate()
        assert process.wait(TIMEOUT_S) == 0
    with broker(tmp_path) as (_, address):
        assert run("-b", address, "consume", "clicks", "-e") == lines
    log = (tmp_path / "log").read_text()
    assert "Traceback" not in log
    assert "truncated" not in log


def test_dump_reads_the_files_of_a_log(tmp_path: Path) -> None:
    with broker(tmp_path) as (_, address):
        run("-b", address, "produce", "clicks", given="one\ntwo\n")
    (segment,) = (tmp_path / "data").rglob("clicks-0/*.log")
    assert "two" in run("log", "dump", segment, "--records")
    run("log", "dump", segment.parent)


def test_broker_recovers_from_a_kill(tmp_path: Path) -> None:
    with broker(tmp_path) as (process, address):
        run("-b", address, "produce", "clicks", given="one\ntwo\n")
        process.kill()
        process.wait(TIMEOUT_S)
    with broker(tmp_path) as (_, address):
        assert run("-b", address, "consume", "clicks", "-e") == "one\ntwo\n"
    assert "Traceback" not in (tmp_path / "log").read_text()


def test_groups_commit_and_admin_works(tmp_path: Path) -> None:
    with broker(tmp_path) as (process, address):
        run("-b", address, "topic", "create", "clicks", "--partitions", 3)
        run("-b", address, "produce", "clicks", given="one\ntwo\n")
        assert sorted(run("-b", address, "consume", "clicks", "-e", "--group", "g").splitlines()) == ["one", "two"]
        assert run("-b", address, "consume", "clicks", "-e", "--group", "g") == ""
        assert "clicks" in run("-b", address, "topic", "list")
        process.send_signal(signal.SIGINT)
        assert process.wait(TIMEOUT_S) == 0


def test_alternatives_read_and_write_as_the_system_calls_do(tmp_path: Path) -> None:
    file = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT | os.O_APPEND)
    try:
        assert portable._write_joined(file, [b"one", memoryview(b"two"), bytearray(b"three")]) == 11
        assert portable._read_at(file, 5, 3) == os.pread(file, 5, 3) == b"twoth"
        assert portable._read_at(file, 100, 9) == b"ee"
        assert portable._read_at(file, 5, 50) == b""
        portable._write_joined(file, [b"!"])
        assert portable._read_at(file, 100, 0) == b"onetwothree!"
    finally:
        os.close(file)


def test_limits_without_their_module_are_those_of_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = portable.cpu_s()
    monkeypatch.setattr(portable, "resource", None)
    portable.raise_open_files_limit()
    portable.limit_memory(1)
    assert portable.open_files_limit() == portable.FILES_MAX
    assert portable.cpu_s() == pytest.approx(usual, abs=1)


def test_flush_of_a_mac_reaches_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    synced: list[int] = []

    def full_flush(fd: int, command: int) -> None:
        asked.append(command)
        if len(asked) > 1:
            raise OSError("this file system does not know the command")

    monkeypatch.setattr(portable, "_FULL_FLUSH", 51)
    monkeypatch.setattr(portable.fcntl, "fcntl", full_flush)
    monkeypatch.setattr(os, "fsync", synced.append)
    portable.flush_file(7)
    assert (asked, synced) == ([51], [])
    portable.flush_file(8)
    assert (asked, synced) == ([51, 51], [8])
