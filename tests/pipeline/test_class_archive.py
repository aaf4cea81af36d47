"""An archive of Spark's classes is made and used, and one that is none keeps no session from starting."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas.spark.class_archive import JAVA_OPTIONS, archive_path
from tests.support.quick_java import java_home_or_skip
from tests.support.xdist_groups import SPARK_PROGRAMS

pytestmark = pytest.mark.xdist_group(SPARK_PROGRAMS)

PROGRAM = """
from pathlib import Path
from barnabas.spark import local_session, stop_session
spark = local_session(master="local[1]")
java = spark._jvm.java.lang.ProcessHandle.current().pid()
print(spark.range(10).count(), ARCHIVE in Path(f"/proc/{java}/maps").read_text())
stop_session(spark)
"""


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return a function that runs Python with a cache of its own."""
    kept = {name: value for name, value in os.environ.items() if name != JAVA_OPTIONS}

    def python(*arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {**kept, "XDG_CACHE_HOME": str(tmp_path / "the cache")}
        command = [sys.executable, *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=400, check=True)

    return python


def test_a_session_starts_with_the_archive_that_was_made_and_without_one_that_is_damaged(
    run: Callable[..., subprocess.CompletedProcess[str]], quick_java: None, tmp_path: Path
) -> None:
    """The one that `quick_java` had made for all tests, copied."""
    java = java_home_or_skip()
    made = archive_path(java)
    assert made.exists(), "a warning says why it was not made"
    assert not list(made.parent.glob(f"{made.stem}-*")), "nothing of the making is left"
    archive = archive_path(java, {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "the cache")})
    archive.parent.mkdir(parents=True)
    shutil.copy(made, archive)
    program = PROGRAM.replace("ARCHIVE", repr(str(archive)))
    assert run("-m", "barnabas.spark.make_class_archive", "--if-missing").stdout == ""
    assert run("-c", program).stdout.split() == ["10", "True"]
    with archive.open("r+b") as file:
        file.write(bytes(1 << 20))
    assert run("-c", program).stdout.split() == ["10", "False"]
