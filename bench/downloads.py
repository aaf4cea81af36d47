"""Downloads peers to a cache directory: jars from Maven, and unpacked Debian packages.

Nothing is installed into the system, and no system service is started: packages are downloaded with `apt-get download`
(without root) and unpacked with `dpkg -x`. The cache directory is $BENCH_CACHE, or ~/.cache/barnabas-bench. Delete it
to get newer releases.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

DOWNLOAD_LIMIT_S = 900
_POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>barnabas.bench</groupId><artifactId>jars</artifactId><version>1</version>
  <dependencies>
{dependencies}
  </dependencies>
</project>
"""
_DEPENDENCY = (
    "    <dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>{exclusions}</dependency>"
)
_ALONE = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
ARTIFACT = re.compile(r"Could not find artifact (\S+)|(\S+) was not found in \S+ during a previous attempt")
NEWEST = "RELEASE"
"""The version name that means the newest release in Maven."""


class UnavailableError(Exception):
    """A peer is not available on this machine. The error message is the reason."""


class NotStartedError(UnavailableError):
    """A server process ended at its start, or did not listen in time. Another attempt may succeed."""


def cache_folder() -> Path:
    """Return the directory for downloads, and create it if it is missing."""
    folder = Path(os.environ.get("BENCH_CACHE") or Path.home() / ".cache/barnabas-bench")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def java(newest: bool = True) -> str:
    """Return a `java` of version 17 or later: the newest on this machine, or the oldest.

    :raises UnavailableError: if there is none.
    """
    found: dict[int, str] = {}
    homes = [os.environ.get("JAVA_HOME", ""), *map(str, sorted(Path("/usr/lib/jvm").glob("*")))]
    for program in [*(f"{home}/bin/java" for home in homes if home), shutil.which("java") or ""]:
        if version := java_version(program):
            found.setdefault(version, program)
    usable = [version for version in found if version >= 17]
    if not usable:
        raise UnavailableError("no Java of version 17 or later is installed")
    return found[max(usable) if newest else min(usable)]


def java_version(program: str) -> int:
    """Return the major version of a `java` program; 0 if it does not run."""
    try:
        result = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except OSError:
        return 0
    match = re.search(r'version "(\d+)', result.stderr)
    return int(match[1]) if match else 0


def maven_jars(name: str, coordinates: Sequence[str], *, transitive: bool = True) -> Path:
    """Return a folder with the jars of `group:artifact:version` coordinates and their dependencies.

    :param name: the name of the folder in the cache.
    :param coordinates: the first one has the version. Later coordinates without a version get the same version.
    :param transitive: False to omit dependencies; then each coordinate needs a version.
    :raises UnavailableError: if Maven is not installed, or does not find the artifacts.
    """
    folder = cache_folder() / name
    if not folder.exists():
        if not transitive:
            _copy_jars(coordinates, folder, transitive=False)
            return folder
        version = coordinates[0].split(":")[2]
        if version == NEWEST and len(coordinates) > 1:
            version = newest_version(coordinates[0])
        _copy_jars([_with_version(each, version) for each in coordinates], folder, transitive=True)
    return folder


def newest_version(coordinate: str) -> str:
    """Ask Maven for the newest release of an artifact.

    All jars of a project should have the same release, and Maven may not have all artifacts of the newest release yet.
    """
    artifact = coordinate.split(":")[1]
    with tempfile.TemporaryDirectory() as scratch:
        _copy_jars([coordinate], Path(scratch) / "jars", transitive=False)
        return jar_version(Path(scratch) / "jars", artifact)


def jar_version(folder: Path, artifact: str) -> str:
    """Return the version in the name of an artifact's jar.

    :raises UnavailableError: if the folder has no such jar.
    """
    for jar in folder.glob(f"{artifact}-*.jar"):
        if match := re.fullmatch(re.escape(artifact) + r"-(\d[\w.]*)\.jar", jar.name):
            return match[1]
    raise UnavailableError(f"{folder} has no jar of {artifact}")


def _with_version(coordinate: str, version: str) -> str:
    group, artifact, *_ = coordinate.split(":")
    return f"{group}:{artifact}:{version}"


def _copy_jars(coordinates: Sequence[str], folder: Path, *, transitive: bool) -> None:
    maven = shutil.which("mvn")
    if not maven:
        raise UnavailableError("Maven (mvn) is not installed")
    with tempfile.TemporaryDirectory(dir=cache_folder()) as scratch:
        pom = Path(scratch) / "pom.xml"
        exclusions = "" if transitive else _ALONE
        lines = [_DEPENDENCY.format(*each.split(":"), exclusions=exclusions) for each in coordinates]
        pom.write_text(_POM.format(dependencies="\n".join(lines)))
        jars = Path(scratch) / "jars"
        goal = [
            f"-DoutputDirectory={jars}",
            "-DincludeScope=runtime",
            f"-DexcludeTransitive={str(not transitive).lower()}",
        ]
        _run([maven, "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", *goal], "Maven")
        folder.parent.mkdir(parents=True, exist_ok=True)
        jars.rename(folder) if folder.parent == cache_folder() else shutil.copytree(jars, folder)


def debian_package(package: str, proof: str) -> Path:
    """Return the root of a file tree with an installed or unpacked Debian package.

    :param proof: a glob pattern of a file in the package. If the file exists, the package is installed.
    :raises UnavailableError: if the package is not available.
    """
    if any(Path("/").glob(proof)):
        return Path("/")
    folder = cache_folder() / f"debian-{package}"
    if not folder.exists():
        if not shutil.which("apt-get") or not shutil.which("dpkg"):
            raise UnavailableError("apt-get is not installed")
        with tempfile.TemporaryDirectory(dir=cache_folder()) as scratch:
            _unpack(_missing_packages(package), Path(scratch))
            (Path(scratch) / "root").rename(folder)
    if not any(folder.glob(proof)):
        raise UnavailableError(f"Debian's package {package} has no file {proof}")
    return folder


def _missing_packages(package: str) -> list[str]:
    simulation = ["apt-get", "install", "--simulate", "--no-install-recommends", package]
    try:
        plan = _run(simulation, "apt-get")
    except UnavailableError:
        if os.geteuid() != 0:
            raise
        _run(["apt-get", "update", "-qq"], "apt-get update")
        plan = _run(simulation, "apt-get")
    return re.findall(r"^Inst (\S+)", plan, re.MULTILINE)


def _unpack(packages: Sequence[str], scratch: Path) -> None:
    archives = scratch / "archives"
    archives.mkdir()
    _run(["apt-get", "download", "-qq", *packages], "apt-get", archives)
    for archive in archives.glob("*.deb"):
        _run(["dpkg", "-x", str(archive), str(scratch / "root")], "dpkg")


def _run(command: Sequence[str], what: str, folder: Path | None = None) -> str:
    environment = {**os.environ, "LC_ALL": "C"}
    try:
        result = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=DOWNLOAD_LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise UnavailableError(f"{what} took longer than {DOWNLOAD_LIMIT_S} s") from None
    if result.returncode:
        raise UnavailableError(explain_failure(what, result.stdout + result.stderr))
    return result.stdout


def explain_failure(what: str, output: str) -> str:
    """Return a line about a failed download.

    >>> explain_failure("Maven", "[ERROR] goal failed: Could not find artifact g:a:jar:1 in central (...)")
    'Maven does not have g:a:jar:1'
    """
    if missing := ARTIFACT.search(output):
        return f"{what} does not have {missing[1] or missing[2]}"
    lines = [line for line in output.splitlines() if line.strip()] or ["no output"]
    errors = [line for line in lines if "ERROR" in line or line.startswith("E:")] or lines
    return f"{what} failed: {errors[0][:300]}"
