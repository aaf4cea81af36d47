"""Where the Spark is that a session on this machine runs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pyspark


def spark_home(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of the Spark that `SPARK_HOME` names, or else of the one in the package `pyspark`."""
    return Path(environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)
