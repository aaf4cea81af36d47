"""Jars of other people's programs, brought by Maven once, into the tests' cache.

Where Maven, Java or a way to Maven's registry is missing, the test that asks is skipped, and pytest says why.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.support.cache import cached

MAVEN_TIMEOUT_S = 300
COMPILER_TIMEOUT_S = 120
TEST_TIMEOUT_S = 2 * MAVEN_TIMEOUT_S + COMPILER_TIMEOUT_S + 300
"""For a test that may be the first to ask for jars: of up to two programs, and one of ours to be compiled."""

POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>barnabas</groupId><artifactId>jars</artifactId><version>1</version>
  <dependencies>{}</dependencies>
</project>
"""
DEPENDENCY = "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"


def java(program: str = "java") -> str:
    """Return the path of a program of the JDK: that of JAVA_HOME, or the first on the path."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which(program, path=f"{home}/bin") if home else None
    return found or shutil.which(program) or pytest.skip(f"{program} is not installed")


@functools.cache
def jars(name: str, *artifacts: str) -> Path:
    """Return the folder with the jars of some artifacts, each `group:artifact:version`, and of what they depend on.

    :param name: of the folder in the cache; tell the versions in it.
    """
    java()
    pom = POM.format("".join(DEPENDENCY.format(*artifact.split(":")) for artifact in artifacts))

    def bring(folder: Path) -> None:
        with tempfile.TemporaryDirectory() as project:
            (Path(project) / "pom.xml").write_text(pom, encoding="utf-8")
            _run_maven(Path(project), "dependency:copy-dependencies", f"-DoutputDirectory={folder}")

    return cached(name, bring)


@functools.cache
def unpacked(name: str, artifact: str) -> Path:
    """Return the folder with what is in an archive, `group:artifact:version:type:classifier`."""
    java()

    def bring(folder: Path) -> None:
        with tempfile.TemporaryDirectory() as project:
            _run_maven(
                Path(project),
                "dependency:unpack",
                f"-Dartifact={artifact}",
                f"-DoutputDirectory={folder}",
                f"-Dproject.basedir={project}",
            )

    return cached(name, bring)


@functools.cache
def copied(name: str, artifact: str) -> Path:
    """Return the path of one file, `group:artifact:version:type:classifier`."""
    java()

    def bring(folder: Path) -> None:
        with tempfile.TemporaryDirectory() as project:
            arguments = (f"-Dartifact={artifact}", f"-DoutputDirectory={folder}", f"-Dproject.basedir={project}")
            _run_maven(Path(project), "dependency:copy", *arguments)

    (file,) = cached(name, bring).iterdir()
    return file


@functools.cache
def classes(source: Path, libraries: Path) -> Path:
    """Return the folder with the classes that a source file of ours is compiled to, against the jars of a folder."""
    compiler = java("javac")
    digest = hashlib.sha256(source.read_bytes() + libraries.name.encode()).hexdigest()[:16]

    def compile_to(folder: Path) -> None:
        command = [compiler, "-Xlint:all,-classfile,-processing", "-Werror", "-cp", f"{libraries}/*", "-d", str(folder)]
        done = subprocess.run(
            [*command, str(source)], timeout=COMPILER_TIMEOUT_S, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr

    return cached(f"java-{source.stem}-{digest}", compile_to)


def _run_maven(project: Path, *arguments: str) -> None:
    maven = shutil.which("mvn") or pytest.skip("Maven is not installed")
    command = [maven, "-q", "-B", *arguments]
    try:
        done = subprocess.run(
            command, cwd=project, timeout=MAVEN_TIMEOUT_S, capture_output=True, text=True, check=False
        )
    except subprocess.TimeoutExpired:
        pytest.skip(f"Maven did not bring the jars within {MAVEN_TIMEOUT_S} s")
    if done.returncode:
        pytest.skip(f"Maven cannot bring the jars: {done.stdout.strip()[-300:]}")
