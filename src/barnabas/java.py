"""Finds the Java runtimes of this machine, so that nobody has to set JAVA_HOME.

A home is judged by its `release` file, without starting it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

USUAL_FOLDERS = (
    Path("/usr/lib/jvm"),
    Path("/opt/java"),
    Path("/Library/Java/JavaVirtualMachines"),
    Path.home() / ".sdkman/candidates/java",
)


def java_homes(environ: Mapping[str, str], folders: Iterable[Path] = USUAL_FOLDERS) -> Iterator[Path]:
    """Yield what may be homes: JAVA_HOME, that of the `java` on the PATH, then the usual folders, oldest first."""
    if environ.get("JAVA_HOME"):
        yield Path(environ["JAVA_HOME"])
    for folder in environ.get("PATH", "").split(":"):
        program = Path(folder, "java")
        if folder and program.exists():
            yield program.resolve().parent.parent
    homes = [home for folder in folders if folder.is_dir() for home in folder.iterdir()]
    homes += [home / "Contents/Home" for home in homes if (home / "Contents/Home").is_dir()]
    yield from sorted(homes, key=lambda home: (java_version(home) or 0, home.name))


def java_version(home: Path) -> int | None:
    """Return the major version that the `release` file of a Java home states, None if it is not one."""
    match = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', release_of(home), re.MULTILINE)
    return int(match.group(1)) if match and (home / "bin/java").exists() else None


def release_of(home: Path) -> str:
    """Return what the `release` file of a home says; nothing where there is none."""
    try:
        return (home / "release").read_text(errors="replace")
    except OSError:
        return ""
