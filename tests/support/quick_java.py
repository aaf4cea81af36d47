"""Lets the Java of tests' Sparks start in a third of the time: most of what they do is to start.

What is compiled is compiled fast and not well, since nothing runs for long. And the classes of Spark come out of their
archive (`barnabas.spark.class_archive`), which the first who asks makes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from barnabas.spark import JavaNotFoundError
from barnabas.spark.class_archive import JAVA_OPTIONS, archive_environment, archive_path, is_current
from barnabas.spark.java import find_java_home
from tests.support.cache import locked

OPTIONS = "-XX:+IgnoreUnrecognizedVMOptions -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto -Xlog:disable"
OF_SPARK = JAVA_OPTIONS
OF_LAUNCHER = "SPARK_LAUNCHER_OPTS"
"""Spark's script starts a Java that does nothing but find out how the real one is to be started."""
MAKING_S_MAX = 600.0


def java_home_or_skip() -> Path:
    """Return the home of a Java runtime that Spark can use; skip the test where there is none."""
    try:
        return find_java_home(os.environ)
    except JavaNotFoundError as error:
        pytest.skip(str(error))


def quick_environment() -> dict[str, str]:
    """Return the variables for Sparks that start fast.

    :raises JavaNotFoundError: no Java runtime that Spark can use.
    """
    java = find_java_home(os.environ)
    archive = archive_path(java)
    with locked(archive.name):
        if not is_current(archive):
            _make(archive)
    given = {OF_SPARK: OPTIONS, OF_LAUNCHER: OPTIONS}
    return given | archive_environment(java, os.environ | given)


def _make(archive: Path) -> None:
    """Make the archive; without one Sparks only start more slowly."""
    # Beside this process, whose Spark is the tests' own.
    command = [sys.executable, "-m", "barnabas.spark.make_class_archive"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=MAKING_S_MAX, check=False)
    if done.returncode:
        warnings.warn(f"{archive}: {done.stderr[-500:]}", stacklevel=2)
