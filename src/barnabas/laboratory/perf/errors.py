"""What goes wrong with a run, and not with a client."""

from __future__ import annotations

from barnabas.errors import BarnabasError


class RunFailedError(BarnabasError):
    """A run whose figures would be worth nothing: records are missing, or a process of it has died."""
