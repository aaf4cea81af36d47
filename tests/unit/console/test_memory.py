"""Memory that audits have freed goes back to the operating system."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import os, sys, threading
from barnabas.console.memory import return_freed_memory, use_little_memory

def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

if sys.argv[1] == "little":
    use_little_memory()
before = resident_bytes()

def work():
    kept, freed = [], []
    for _ in range(200_000):
        freed.append(b"x" * 400)
        kept.append(object())
    cycle = [freed]
    cycle.append(cycle)

for _ in range(8):
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
if sys.argv[1] == "little":
    return_freed_memory()
print(resident_bytes() - before, os.environ.get("ARROW_DEFAULT_MEMORY_POOL", ""))
"""


def growth(way: str, **environment: str) -> tuple[int, str]:
    """Return by how many bytes a process has grown after its threads have ended, and Arrow's allocator."""
    command = [sys.executable, "-c", PROGRAM, way]
    found = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, **environment})
    grown, _, pool = found.stdout.strip().partition(" ")
    return int(grown), pool


@pytest.mark.skipif(sys.platform != "linux", reason="reads the memory of a process as Linux shows it")
def test_freed_memory_is_returned() -> None:
    little, pool = growth("little")
    much, _ = growth("much")
    assert little < much / 4
    assert pool == "system"


def test_choice_of_the_user_stays() -> None:
    assert growth("little", ARROW_DEFAULT_MEMORY_POOL="mimalloc")[1] == "mimalloc"
