"""The directory of the Spark that local sessions run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pyspark


def spark_home(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the directory in `SPARK_HOME`, or that of the package `pyspark`."""
    return Path(environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)
