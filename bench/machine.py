"""Describes the machine of the measurements."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import sys
from importlib import metadata
from pathlib import Path

CLIENT_PACKAGES = ("confluent-kafka", "kafka-python", "aiokafka", "pika", "stomp.py", "pyspark", "pyarrow")


def describe() -> str:
    """Describe cores, processor, memory, kernel and Python version in one line.

    >>> "Python" in describe()
    True
    """
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    parts = [
        f"{os.cpu_count()} cores ({_processor()})",
        f"{memory_gib:.0f} GB of memory",
        f"{platform.system()} {platform.release().split('-')[0]}",
        f"{'system ' if sys.base_prefix == '/usr' else ''}Python {platform.python_version()}",
    ]
    return ", ".join(parts)


def client_versions() -> dict[str, str]:
    """Return the versions of the installed client packages."""
    found = {}
    for package in CLIENT_PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found


def _processor() -> str:
    try:
        info = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.machine()
    found = re.search(r"^model name\s*:\s*(.+)$", info, re.MULTILINE)
    return found[1].strip() if found else platform.machine()
