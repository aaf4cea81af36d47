"""The output of `barnabas --version`, computed without importing the codec."""

from __future__ import annotations

import os
from importlib.machinery import PathFinder

import barnabas


def version_line() -> str:
    """Return the version of Barnabas and the record codec in use."""
    codec = codec_in_use()
    slower = "" if codec == "compiled" else ": correct, but slower; with a C compiler, pip builds the compiled one"
    return f"barnabas {barnabas.__version__} ({codec} record codec{slower})"


def codec_in_use() -> str:
    """Return the value of `barnabas.records.CODEC`: the compiled codec if it exists for this Python.

    :raises ConfigurationError: BARNABAS_CODEC names a codec that does not exist.
    """
    if os.environ.get("BARNABAS_CODEC"):
        from barnabas.records import CODEC

        return CODEC
    folders = [f"{folder}/records" for folder in barnabas.__path__]
    return "pure" if PathFinder.find_spec("codec_compiled", folders) is None else "compiled"
