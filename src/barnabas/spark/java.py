"""Finds a Java runtime that Spark can run on, so that nobody has to set JAVA_HOME.

Spark 4 needs Java 17 or later, and its JVM is started with the module `jdk.incubator.vector`, which cut-down
runtimes lack. A home is judged by its `release` file, without starting it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from barnabas.spark.errors import JavaNotFoundError

OLDEST_VERSION = 17
NEEDED_MODULE = "jdk.incubator.vector"
USUAL_FOLDERS = (
    Path("/usr/lib/jvm"),
    Path("/opt/java"),
    Path("/Library/Java/JavaVirtualMachines"),
    Path.home() / ".sdkman/candidates/java",
)


def find_java_home(environ: Mapping[str, str], folders: Iterable[Path] = USUAL_FOLDERS) -> Path:
    """Return the home of a Java runtime that Spark can use.

    JAVA_HOME comes first, then the `java` on the PATH, then the usual folders, oldest usable version first.

    :raises JavaNotFoundError: there is none.
    """
    found = []
    for home in _candidates(environ, folders):
        version = java_version(home)
        if version is not None and version >= OLDEST_VERSION and _has_needed_module(home):
            return home
        found.append(f"{home} ({'no version' if version is None else f'version {version}'})")
    raise JavaNotFoundError(
        f"Spark needs a Java runtime, version {OLDEST_VERSION} or later: install one "
        "(Debian: apt-get install openjdk-17-jre-headless) or set JAVA_HOME"
        + (f"; not usable: {', '.join(found)}" if found else "")
    )


def java_version(home: Path) -> int | None:
    """Return the major version that the `release` file of a Java home states, None if it is not one."""
    match = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', _release(home), re.MULTILINE)
    return int(match.group(1)) if match and (home / "bin/java").exists() else None


def _has_needed_module(home: Path) -> bool:
    modules = re.search(r'^MODULES="([^"]*)"', _release(home), re.MULTILINE)
    return modules is None or NEEDED_MODULE in modules.group(1).split()


def _release(home: Path) -> str:
    try:
        return (home / "release").read_text(errors="replace")
    except OSError:
        return ""


def _candidates(environ: Mapping[str, str], folders: Iterable[Path]) -> Iterator[Path]:
    if environ.get("JAVA_HOME"):
        yield Path(environ["JAVA_HOME"])
    for folder in environ.get("PATH", "").split(":"):
        program = Path(folder, "java")
        if folder and program.exists():
            yield program.resolve().parent.parent
    homes = [home for folder in folders if folder.is_dir() for home in folder.iterdir()]
    homes += [home / "Contents/Home" for home in homes if (home / "Contents/Home").is_dir()]
    yield from sorted(homes, key=lambda home: (java_version(home) or 0, home.name))
