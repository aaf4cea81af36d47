"""An archive of Spark's classes is made and used, and one that is none keeps no session from starting."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas.spark.class_archive import JAVA_OPTIONS, archive_path
from barnabas.spark.errors import JavaNotFoundError
from barnabas.spark.java import find_java_home
from tests.groups import SPARK_PROGRAMS

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
    run: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    try:
        archive = archive_path(
            find_java_home(os.environ), {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "the cache")}
        )
    except JavaNotFoundError as error:
        pytest.skip(str(error))
    program = PROGRAM.replace("ARCHIVE", repr(str(archive)))
    make = ("-m", "barnabas.spark.make_class_archive", "--if-missing")
    assert run(*make).stdout.startswith(str(archive))
    assert run(*make).stdout == ""
    assert list(archive.parent.iterdir()) == [archive], "nothing else is left in the cache"
    assert run("-c", program).stdout.split() == ["10", "True"]
    archive.chmod(0o600)
    with archive.open("r+b") as file:
        file.write(bytes(1 << 20))
    assert run("-c", program).stdout.split() == ["10", "False"]
