"""The JVM archive of Spark's loaded classes, which halves the startup time of a local session.

The archive is a feature of Java (class data sharing, JEP 350). `python -m barnabas.spark.make_class_archive` creates it
in `~/.cache/barnabas` (or `$XDG_CACHE_HOME/barnabas`), one for each Java and PySpark; `local_session` then passes it to
the JVM. The JVM silently ignores an archive that does not match its version or Spark's jars. An environment that was
reinstalled in the same directory needs a new archive.

The cache is bounded (`prune_archives`). The modification time of an archive is the time of its last use.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pyspark

from barnabas.clock import SYSTEM_CLOCK
from barnabas.java import release_of
from barnabas.spark.spark_home import spark_home

JAVA_OPTIONS = "SPARK_SUBMIT_OPTS"
"""The environment variable with additional options for the JVM of a Spark driver."""
ARCHIVES_KEPT = 4
ARCHIVE_BYTES_KEPT = 1_000_000_000
UNUSED_S_MAX = 30 * 24 * 3600.0
"""The time in seconds after which an unused archive is removed."""
UNFINISHED_S_MAX = 24 * 3600.0
"""The time in seconds after which the directory of a creation that was killed is removed."""


def archive_path(java_home: Path, environ: Mapping[str, str] = os.environ) -> Path:
    """Return the path of the archive for this PySpark and a Java runtime. The file may not exist."""
    cache = Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "barnabas"
    of_whom = [
        pyspark.__version__,
        pyspark.__file__,
        environ.get("SPARK_HOME", ""),
        str(java_home.resolve()),
        release_of(java_home),
    ]
    return cache / f"spark-classes-{hashlib.sha256(repr(of_whom).encode()).hexdigest()[:16]}.jsa"


def is_current(archive: Path, environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether an archive exists and is newer than Spark's jars. The JVM compares their times, too."""
    try:
        made_s = archive.stat().st_mtime
        with os.scandir(spark_home(environ) / "jars") as entries:
            return all(entry.stat().st_mtime <= made_s for entry in entries)
    except OSError:
        return False


def archive_environment(java_home: Path, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment variables that make Spark's JVM use the archive.

    The result is empty if there is no current archive, or if the user's options already name an archive. The call
    counts as a use of the archive, and removes old archives.
    """
    given = environ.get(JAVA_OPTIONS, "")
    archive = archive_path(java_home, environ)
    if "Archive" in given or not is_current(archive, environ):
        return {}
    with suppress(OSError):  # the cache may be read-only
        os.utime(archive)
        prune_archives(archive.parent)
    return {JAVA_OPTIONS: f"{given} {java_option('SharedArchiveFile', archive)}".lstrip()}


def prune_archives(folder: Path, now_s: float | None = None) -> None:
    """Remove archives that were not used for `UNUSED_S_MAX`, and the least recently used ones beyond the limits.

    The most recently used archive stays. A session whose archive was removed starts without it.

    :param now_s: the wall time in seconds; None for the current time.
    :raises OSError: a file cannot be removed.
    """
    now_s = SYSTEM_CLOCK.time_s() if now_s is None else now_s
    found = [(each.stat(), each) for each in folder.glob("spark-classes-*.jsa")]
    total = 0
    for number, (stat, archive) in enumerate(sorted(found, key=lambda each: each[0].st_mtime_ns, reverse=True)):
        total += stat.st_size
        is_surplus = number >= ARCHIVES_KEPT or total > ARCHIVE_BYTES_KEPT or now_s - stat.st_mtime > UNUSED_S_MAX
        if number > 0 and is_surplus:
            archive.unlink(missing_ok=True)
    for left in folder.glob("spark-classes-*-*/"):
        if now_s - left.stat().st_mtime > UNFINISHED_S_MAX:
            shutil.rmtree(left, ignore_errors=True)


def java_option(option: str, path: Path) -> str:
    """Return a JVM option with a path, quoted for Spark's script, which splits options at spaces."""
    escaped = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"-XX:{option}={escaped}"'
