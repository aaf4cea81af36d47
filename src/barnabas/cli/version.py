"""What `barnabas --version` says, found out without importing what it speaks of."""

from __future__ import annotations

import os
from importlib.machinery import PathFinder

import barnabas


def version_line() -> str:
    """Return the version, and which record codec is in use."""
    codec = codec_in_use()
    slower = "" if codec == "compiled" else ": correct, but slower; with a C compiler, pip builds the compiled one"
    return f"barnabas {barnabas.__version__} ({codec} record codec{slower})"


def codec_in_use() -> str:
    """Return what `barnabas.records.CODEC` is: the compiled codec where there is one for this Python.

    :raises ConfigurationError: BARNABAS_CODEC asks for one that there is not.
    """
    if os.environ.get("BARNABAS_CODEC"):
        from barnabas.records import CODEC

        return CODEC
    folders = [f"{folder}/records" for folder in barnabas.__path__]
    return "pure" if PathFinder.find_spec("codec_compiled", folders) is None else "compiled"
