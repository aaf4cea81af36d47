"""Test the lowest allowed versions of dependencies, older versions of Spark, and the source distribution.

    .venv/bin/python tools/versions_suite.py                          all of them
    .venv/bin/python tools/versions_suite.py spark-4.0 -- -k load     a sample, with arguments for pytest

uv resolves each environment from pyproject.toml, and creates it in the cache folder. Each sample runs the tests of this
checkout; `sdist` runs tests of the unpacked source distribution, with the modules that the environment compiled.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from published_tests import CACHE_FOLDER
from wheels import run, say, unpack_sdist

ROOT = Path(__file__).parents[1]
TEST_PACKAGES = (
    *("pytest>=8.3,<9.2", "pytest-timeout>=2.3", "pytest-xdist>=3.7", "hypothesis>=6.100", "setuptools"),
    *("opentelemetry-sdk>=1.37", "pandas>=2.2", "polars>=1.0"),
    *("aiokafka>=0.12", "confluent-kafka>=2.6", "kafka-python>=3.0", "greenlet>=3.1", "lz4>=4.3", "python-snappy>=0.7"),
    "zstandard>=0.23",
)
UNIT_TESTS = ("cli", "console", "metrics", "records", "registry", "security", "serialization", "spark", "sql")
BEFORE_4_2 = "not stream and not at_the_driver"
"""Earlier versions of Spark refuse streams that read topics, and show a traceback in the errors of queries."""
SPARK_TESTS = ("data_source", "load", "append_batch", "sink")


@dataclass(frozen=True)
class Sample:
    """Tests in an environment of their own.

    :param extras: the extras of Barnabas in the environment.
    :param pinned: further requirements.
    :param tests: files and folders of tests, and options of pytest.
    :param lowest: True for the lowest allowed versions of the packages that pyproject.toml names.
    :param chosen: an expression for pytest's option `-k`.
    """

    extras: Sequence[str]
    tests: Sequence[str]
    pinned: Sequence[str] = ()
    lowest: bool = False
    chosen: str = ""


SAMPLES = {
    "lowest": Sample(
        extras=("activity", "arrow", "console", "delta", "otel", "registry", "reports", "schemas", "security", "sql"),
        tests=(
            *(f"tests/unit/{name}" for name in UNIT_TESTS),
            *(f"tests/interop/test_{name}.py" for name in ("cli", "registry", "security", "sql")),
            # Spark 4.0 has no filters, and refuses streams before it reads their options.
            "--ignore=tests/unit/spark/test_filter_pushdown.py",
            "--deselect=tests/unit/spark/test_table_options.py::test_a_stream_that_cannot_be_says_why_when_it_is_asked",
            # click before 8.4 suggests names in other words.
            "--deselect=tests/unit/cli/test_main.py::test_message_reads_well",
        ),
        lowest=True,
    ),
    "spark-4.0": Sample(
        extras=("delta",),
        pinned=("pyspark[sql]==4.0.*",),
        tests=tuple(f"tests/pipeline/test_{name}.py" for name in SPARK_TESTS),
        chosen=f"{BEFORE_4_2} and not narrowed",
    ),
    "spark-4.1": Sample(
        extras=("delta",),
        pinned=("pyspark[sql]==4.1.*",),
        tests=tuple(f"tests/pipeline/test_{name}.py" for name in SPARK_TESTS),
        chosen=BEFORE_4_2,
    ),
    "sdist": Sample(
        extras=("arrow",),
        tests=("tests/unit/records", "tests/unit/storage", "tests/unit/protocol", "tests/interop/test_records.py"),
    ),
}


def uv(*arguments: str | Path) -> str:
    """Run uv, which a separate environment contains; return its output."""
    folder = CACHE_FOLDER / "uv"
    if not (folder / "bin" / "uv").exists():
        run(sys.executable, "-m", "venv", folder)
        run(folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "uv>=0.5")
    return run(folder / "bin" / "uv", *arguments)


def make_environment(name: str, sample: Sample, source: Path) -> Path:
    """Create the environment of a sample; return its Python."""
    folder = CACHE_FOLDER / f"versions-{name}"
    python = folder / "bin" / "python"
    resolution = "lowest-direct" if sample.lowest else "highest"
    extras = [word for extra in sample.extras for word in ("--extra", extra)]
    uv("venv", "--quiet", "--clear", "--python", sys.executable, folder)
    with tempfile.TemporaryDirectory() as work:
        own, resolved = Path(work) / "own.txt", Path(work) / "resolved.txt"
        own.write_text("\n".join(sample.pinned))
        compiled: list[str | Path] = [
            "pip",
            "compile",
            "--quiet",
            "--python",
            python,
            "--resolution",
            resolution,
            *extras,
        ]
        uv(*compiled, "--constraint", own, "--output-file", resolved, source / "pyproject.toml")
        for line in resolved.read_text().splitlines():
            if line.startswith(("pyspark==", "pyarrow==", "pandas==", "duckdb==")):
                say(f"{name} has {line}")
        uv("pip", "install", "--quiet", "--python", python, "--requirement", resolved, *TEST_PACKAGES)
    uv("pip", "install", "--quiet", "--python", python, "--no-deps", "--editable", source)
    return python


def run_sample(name: str, sample: Sample, further: Sequence[str]) -> int:
    """Run the tests of a sample; return the exit code of pytest."""
    with tempfile.TemporaryDirectory() as work:
        # An editable installation writes compiled modules beside the sources, so it gets sources of its own.
        uv("build", "--quiet", "--sdist", "--out-dir", work, ROOT)
        [sdist] = Path(work).glob("*.tar.gz")
        source = unpack_sdist(sdist, Path(work))
        python = make_environment(name, sample, source)
        chosen = ["-k", sample.chosen] if sample.chosen else []
        command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *chosen, *sample.tests, *further]
        return subprocess.run(list(map(str, command)), cwd=source, env=os.environ, check=False).returncode


def main() -> int:
    """Run the samples; return 1 if tests of one failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("samples", nargs="*", help=f"default: {' '.join(SAMPLES)}")
    separator = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    chosen = parser.parse_args(sys.argv[1:separator]).samples or list(SAMPLES)
    if unknown := set(chosen) - set(SAMPLES):
        parser.error(f"there is no sample {', '.join(sorted(unknown))}; there are {', '.join(SAMPLES)}")
    failed = [name for name in chosen if run_sample(name, SAMPLES[name], sys.argv[separator + 1 :])]
    if failed:
        say(f"tests failed in the samples {', '.join(failed)}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
