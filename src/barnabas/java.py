"""The Java runtimes of this machine. Users need not set JAVA_HOME.

The version of a Java home is read from its `release` file; no Java process is started.
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
    """Yield candidates for Java homes: JAVA_HOME, the home of `java` on the PATH, then the usual folders, oldest
    version first.
    """
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
    """Return the major version in the `release` file of a Java home; None if the folder is not a Java home."""
    match = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', release_of(home), re.MULTILINE)
    return int(match.group(1)) if match and (home / "bin/java").exists() else None


def release_of(home: Path) -> str:
    """Return the content of the `release` file of a Java home; an empty string if there is no such file."""
    try:
        return (home / "release").read_text(errors="replace")
    except OSError:
        return ""
