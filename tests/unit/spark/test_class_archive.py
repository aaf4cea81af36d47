"""Which archive of Spark's classes a Java is told to use."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from pathlib import Path
from typing import IO

import pyspark
import pytest
from pyspark import SparkConf
from pyspark.errors import PySparkRuntimeError

from barnabas.spark import class_archive, make_class_archive, session
from barnabas.spark.class_archive import JAVA_OPTIONS, archive_environment, archive_path, is_current, prune_archives
from barnabas.spark.errors import SparkFailedError

JAVA = Path("/nowhere/java-17")


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"XDG_CACHE_HOME": str(tmp_path / "the cache")}


@pytest.fixture
def archive(environ: dict[str, str]) -> Path:
    """An archive that was made."""
    path = archive_path(JAVA, environ)
    path.parent.mkdir(parents=True)
    path.touch()
    return path


def test_without_an_archive_java_is_told_nothing(environ: dict[str, str]) -> None:
    assert archive_environment(JAVA, environ) == {}


def test_an_archive_of_jars_that_were_put_there_since_is_left_aside_and_made_anew(
    environ: dict[str, str], archive: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made: list[Path] = []

    def make() -> Path:
        archive.touch()
        made.append(archive)
        return archive

    monkeypatch.setattr(make_class_archive, "archive_path", lambda _java: archive)
    monkeypatch.setattr(make_class_archive, "find_java_home", lambda _environ: JAVA)
    monkeypatch.setattr(make_class_archive, "make_class_archive", make)
    assert archive_environment(JAVA, environ)
    assert make_class_archive.main(["--if-missing"]) == 0
    assert made == []
    newest_s = max(jar.stat().st_mtime for jar in (Path(pyspark.__file__).parent / "jars").iterdir())
    os.utime(archive, (newest_s - 1, newest_s - 1))
    assert archive_environment(JAVA, environ) == {}
    assert make_class_archive.main(["--if-missing"]) == 0
    assert made == [archive]
    assert str(archive) in capsys.readouterr().out
    assert archive_environment(JAVA, environ)


def test_without_the_jars_of_spark_no_archive_fits(environ: dict[str, str], archive: Path) -> None:
    assert not is_current(archive, {**environ, "SPARK_HOME": "/nowhere/spark"})


@pytest.mark.parametrize(("given", "told"), [(None, ""), ("-Xmx2g", "-Xmx2g ")])
def test_java_is_told_of_the_archive_besides_what_was_given(
    given: str | None, told: str, environ: dict[str, str], archive: Path
) -> None:
    if given is not None:
        environ[JAVA_OPTIONS] = given
    assert archive_environment(JAVA, environ) == {JAVA_OPTIONS: f'{told}"-XX:SharedArchiveFile={archive}"'}


@pytest.mark.parametrize("given", ["-XX:SharedArchiveFile=/mine.jsa", "-XX:ArchiveClassesAtExit=/new.jsa"])
def test_who_names_an_archive_has_that_one(given: str, environ: dict[str, str], archive: Path) -> None:
    assert archive_environment(JAVA, {**environ, JAVA_OPTIONS: given}) == {}


def test_each_java_and_each_home_of_spark_has_an_archive_of_its_own(environ: dict[str, str], archive: Path) -> None:
    others = {archive_path(Path("/nowhere/java-21"), environ), archive_path(JAVA, {**environ, "SPARK_HOME": "/spark"})}
    assert len(others | {archive}) == 3
    assert archive_environment(Path("/nowhere/java-21"), environ) == {}


@pytest.fixture
def starts(environ: dict[str, str], archive: Path, monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """Have Java start without the archive only, and not at all where NO_ROOM is set; return with which options it was
    asked to."""
    given: list[str | None] = []

    def launch(_conf: SparkConf, streams: Mapping[str, IO[bytes]]) -> str:
        given.append(os.environ.get(JAVA_OPTIONS))
        if given[-1] is None and not os.environ.get("NO_ROOM"):
            return "gateway"
        streams["stderr"].write(b"Error: Could not reserve enough space\n")
        raise PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})

    monkeypatch.setenv("JAVA_HOME", str(JAVA))
    monkeypatch.delenv(JAVA_OPTIONS, raising=False)
    monkeypatch.setattr(session, "launch_gateway", launch)
    monkeypatch.setattr(class_archive, "archive_environment", lambda home: archive_environment(home, environ))
    return given


def start() -> object:
    return session._start_java(SparkConf(loadDefaults=False).setMaster("local[2]"), io.BytesIO())


def test_java_that_does_not_start_with_the_archive_starts_without(
    starts: list[str | None], archive: Path, caplog: pytest.LogCaptureFixture
) -> None:
    option = f'"-XX:SharedArchiveFile={archive}"'
    assert start() == "gateway"
    assert starts == [option, None]
    assert [record.getMessage() for record in caplog.records] == [
        f"the JVM does not start with {option}; it runs without these options"
    ]


@pytest.mark.parametrize("has_archive", [True, False])
def test_why_java_does_not_start_at_all_is_told(
    has_archive: bool,
    starts: list[str | None],
    archive: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("NO_ROOM", "1")
    if not has_archive:
        archive.unlink()
    with pytest.raises(SparkFailedError, match=r"with the master local\[2\]: Error: Could not reserve enough space$"):
        start()
    assert starts[1 if has_archive else 0 :] == [None, None], "once more, to hear why"
    assert not caplog.records, "the archive has nothing to do with it"


DAY_S = 24 * 3600
NOW_S = 100 * DAY_S


def cache_of(folder: Path, **ages_s: float) -> None:
    """Fill a cache with archives of one byte, by the time since their last uses."""
    for name, age_s in ages_s.items():
        path = folder / f"spark-classes-{name}.jsa"
        path.write_text("x")
        os.utime(path, (NOW_S - age_s, NOW_S - age_s))
    (folder / "notes.txt").touch()


def left_in(folder: Path) -> list[str]:
    return sorted(each.name.removeprefix("spark-classes-").removesuffix(".jsa") for each in folder.iterdir())


def test_archives_beyond_the_last_used_ones_are_removed(tmp_path: Path) -> None:
    cache_of(tmp_path, a=1, b=5, c=4, d=2, e=3)
    prune_archives(tmp_path, NOW_S)
    assert left_in(tmp_path) == ["a", "c", "d", "e", "notes.txt"]


def test_unused_archives_are_removed_except_the_last_used_one(tmp_path: Path) -> None:
    cache_of(tmp_path, a=29 * DAY_S, b=31 * DAY_S, c=90 * DAY_S)
    prune_archives(tmp_path, NOW_S)
    assert left_in(tmp_path) == ["a", "notes.txt"]
    prune_archives(tmp_path, NOW_S + 300 * DAY_S)
    assert left_in(tmp_path) == ["a", "notes.txt"]


def test_size_of_all_archives_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(class_archive, "ARCHIVE_BYTES_KEPT", 2)
    cache_of(tmp_path, a=1, b=2, c=3)
    prune_archives(tmp_path, NOW_S)
    assert left_in(tmp_path) == ["a", "b", "notes.txt"]


def test_directories_of_killed_creations_are_removed_after_a_day(tmp_path: Path) -> None:
    for name, age_s in (("a-old", 2 * DAY_S), ("b-new", 60)):
        folder = tmp_path / f"spark-classes-{name}"
        folder.mkdir()
        (folder / "java.log").touch()
        os.utime(folder, (NOW_S - age_s, NOW_S - age_s))
    prune_archives(tmp_path, NOW_S)
    assert left_in(tmp_path) == ["b-new"]


def test_use_of_an_archive_counts_and_prunes_the_others(environ: dict[str, str], archive: Path) -> None:
    newest_s = max(jar.stat().st_mtime for jar in (Path(pyspark.__file__).parent / "jars").iterdir())
    used_s = newest_s + 1
    os.utime(archive, (used_s, used_s))
    other = archive.with_name("spark-classes-other.jsa")
    other.touch()
    os.utime(other, (1, 1))
    assert archive_environment(JAVA, environ)
    assert archive.stat().st_mtime > used_s
    assert not other.exists()
