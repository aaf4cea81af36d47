"""In which boot of the machine this process runs."""

from __future__ import annotations

from pathlib import Path

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def read_boot_id() -> str:
    """Return what names the present boot, another one each time the machine starts; empty where nobody says it."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return ""
