"""Which archive of Spark's classes a Java is told to use."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pyspark
import pytest
from pyspark import SparkConf
from pyspark.errors import PySparkRuntimeError

from barnabas.spark import class_archive, make_class_archive, session
from barnabas.spark.class_archive import JAVA_OPTIONS, archive_path, fits, variables

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
    assert variables(JAVA, environ) == {}


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
    assert variables(JAVA, environ)
    assert make_class_archive.main(["--if-missing"]) == 0
    assert made == []
    newest_s = max(jar.stat().st_mtime for jar in (Path(pyspark.__file__).parent / "jars").iterdir())
    os.utime(archive, (newest_s - 1, newest_s - 1))
    assert variables(JAVA, environ) == {}
    assert make_class_archive.main(["--if-missing"]) == 0
    assert made == [archive]
    assert str(archive) in capsys.readouterr().out
    assert variables(JAVA, environ)


def test_without_the_jars_of_spark_no_archive_fits(environ: dict[str, str], archive: Path) -> None:
    assert not fits(archive, {**environ, "SPARK_HOME": "/nowhere/spark"})


@pytest.mark.parametrize(("given", "told"), [(None, ""), ("-Xmx2g", "-Xmx2g ")])
def test_java_is_told_of_the_archive_besides_what_was_given(
    given: str | None, told: str, environ: dict[str, str], archive: Path
) -> None:
    if given is not None:
        environ[JAVA_OPTIONS] = given
    assert variables(JAVA, environ) == {JAVA_OPTIONS: f'{told}"-XX:SharedArchiveFile={archive}"'}


@pytest.mark.parametrize("given", ["-XX:SharedArchiveFile=/mine.jsa", "-XX:ArchiveClassesAtExit=/new.jsa"])
def test_who_names_an_archive_has_that_one(given: str, environ: dict[str, str], archive: Path) -> None:
    assert variables(JAVA, {**environ, JAVA_OPTIONS: given}) == {}


def test_each_java_and_each_home_of_spark_has_an_archive_of_its_own(environ: dict[str, str], archive: Path) -> None:
    others = {archive_path(Path("/nowhere/java-21"), environ), archive_path(JAVA, {**environ, "SPARK_HOME": "/spark"})}
    assert len(others | {archive}) == 3
    assert variables(Path("/nowhere/java-21"), environ) == {}


@pytest.mark.parametrize("has_archive", [True, False])
def test_java_that_does_not_start_with_the_archive_starts_without(
    has_archive: bool, environ: dict[str, str], archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[str | None] = []

    def launch(*_arguments: object) -> None:
        given.append(os.environ.get(JAVA_OPTIONS))
        raise PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})

    monkeypatch.setenv("JAVA_HOME", str(JAVA))
    monkeypatch.delenv(JAVA_OPTIONS, raising=False)
    monkeypatch.setattr(session, "launch_gateway", launch)
    monkeypatch.setattr(class_archive, "variables", lambda home: variables(home, environ))
    if not has_archive:
        archive.unlink()
    with pytest.raises(PySparkRuntimeError):
        session._start_java(SparkConf(loadDefaults=False), io.BytesIO())
    assert given == ([f'"-XX:SharedArchiveFile={archive}"'] if has_archive else []) + [None]
