"""Modules that there are twice: compiled where that was possible, and in Python, with the same results.

The environment variable BARNABAS_CODEC asks for one of the two, "compiled" or "pure"; that is for tests and for
comparisons.
"""

from __future__ import annotations

import importlib
import os
from types import ModuleType

from barnabas.errors import ConfigurationError

WANTED = os.environ.get("BARNABAS_CODEC", "")
"""Which was asked for; empty: the compiled one if there is one."""
if WANTED not in ("", "compiled", "pure"):
    raise ConfigurationError(f"BARNABAS_CODEC={WANTED!r} must be 'compiled', 'pure' or empty")


def chosen(name: str) -> ModuleType:
    """Return the twin to be used of `barnabas.records.<name>_compiled` and `..._pure`.

    :raises ConfigurationError: the compiled one was asked for, and was not built here.
    """
    if WANTED != "pure":
        try:
            return importlib.import_module(f"barnabas.records.{name}_compiled")
        except ImportError as error:
            if WANTED:
                raise ConfigurationError(f"BARNABAS_CODEC={WANTED}, but it was not built here: {error}") from error
    return importlib.import_module(f"barnabas.records.{name}_pure")
