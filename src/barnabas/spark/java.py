"""The search for a Java runtime that Spark can use, so that users need not set JAVA_HOME.

Spark 4 needs Java 17 or later. Spark starts its JVM with the module `jdk.incubator.vector`, which minimal runtimes
lack.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from barnabas.java import USUAL_FOLDERS, java_homes, java_version, release_of
from barnabas.spark.errors import JavaNotFoundError

OLDEST_VERSION = 17
NEEDED_MODULE = "jdk.incubator.vector"


def find_java_home(environ: Mapping[str, str], folders: Iterable[Path] = USUAL_FOLDERS) -> Path:
    """Return the home directory of a Java runtime that Spark can use.

    The search order is JAVA_HOME, the `java` on the PATH, then the usual directories, oldest usable version first.

    :raises JavaNotFoundError: There is no such runtime.
    """
    found = []
    for home in java_homes(environ, folders):
        version = java_version(home)
        if version is not None and version >= OLDEST_VERSION and _has_needed_module(home):
            return home
        found.append(f"{home} ({'no version' if version is None else f'version {version}'})")
    raise JavaNotFoundError(
        f"Spark needs a Java runtime, version {OLDEST_VERSION} or later: install one "
        "(Debian: apt-get install openjdk-17-jre-headless) or set JAVA_HOME"
        + (f"; not usable: {', '.join(found)}" if found else "")
    )


def _has_needed_module(home: Path) -> bool:
    modules = re.search(r'^MODULES="([^"]*)"', release_of(home), re.MULTILINE)
    return modules is None or NEEDED_MODULE in modules.group(1).split()
