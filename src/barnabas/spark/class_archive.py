"""Java's archive of Spark's loaded classes (class data sharing): a local session starts in half of the time.

The archive is Java's own (class data sharing, JEP 350). `python -m barnabas.spark.make_class_archive` makes it, once
for each Java and each PySpark, in `~/.cache/barnabas` (or `$XDG_CACHE_HOME/barnabas`), and from then on
`local_session` names it to Java. That looks itself whether it fits its own version and Spark's jars, and goes without
where it does not, and without a word: an environment that was set up anew, in the same place, needs a new one.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

import pyspark

from barnabas.java import release_of
from barnabas.spark.spark_home import spark_home

JAVA_OPTIONS = "SPARK_SUBMIT_OPTS"
"""What Spark's script gives to the Java of a driver, besides what is configured."""


def archive_path(java_home: Path, environ: Mapping[str, str] = os.environ) -> Path:
    """Return where the archive of this PySpark is for a Java, or would be."""
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
    """Return whether there is an archive, made since Spark's jars came where they are: Java compares their times."""
    try:
        made_s = archive.stat().st_mtime
        with os.scandir(spark_home(environ) / "jars") as entries:
            return all(entry.stat().st_mtime <= made_s for entry in entries)
    except OSError:
        return False


def archive_environment(java_home: Path, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment variables with which Spark's Java uses the archive; none where there is none that fits, or
    somebody has said which one to use or to make."""
    given = environ.get(JAVA_OPTIONS, "")
    archive = archive_path(java_home, environ)
    if "Archive" in given or not is_current(archive, environ):
        return {}
    return {JAVA_OPTIONS: f"{given} {java_option('SharedArchiveFile', archive)}".lstrip()}


def java_option(option: str, path: Path) -> str:
    """Return an option of Java's that names a file, as Spark's script takes it: spaces would end it."""
    escaped = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"-XX:{option}={escaped}"'
