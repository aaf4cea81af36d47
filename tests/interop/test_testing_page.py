"""docs/how-to/test-applications.md: each code block is a file of a project whose tests pass."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.reading import TIMEOUT_S
from tests.support.xdist_groups import CLUSTERS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "test-applications.md"
TEXT = PAGE.read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n# ([\w.]+)\n(.*?)```", TEXT, re.DOTALL)
OF_CLUSTERS = {name for name, text in BLOCKS if "barnabas_cluster" in text}


def run_blocks(folder: Path, names: set[str]) -> str:
    """Run some blocks as files of one project, and return the output."""
    for name, text in BLOCKS:
        if name in names:
            (folder / name).write_text(text, encoding="utf-8")
    (folder / "pytest.ini").write_text("[pytest]\n")
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--basetemp={folder / 'base'}", "."]
    done = subprocess.run(
        command, cwd=folder, env=own, capture_output=True, text=True, timeout=2 * TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_each_block_is_a_file() -> None:
    assert len(BLOCKS) == TEXT.count("```python") >= 10
    assert len(OF_CLUSTERS) == 1


def test_blocks_with_one_broker_pass(tmp_path: Path) -> None:
    tested = {name for name, _ in BLOCKS} - OF_CLUSTERS
    said = run_blocks(tmp_path, tested)
    expected = sum(text.count("def test_") for name, text in BLOCKS if name in tested)
    assert f"{expected} passed" in said


@pytest.mark.xdist_group(CLUSTERS)
def test_blocks_with_a_cluster_pass(tmp_path: Path) -> None:
    said = run_blocks(tmp_path, OF_CLUSTERS)
    assert "2 passed" in said


def test_page_names_each_fault_that_exists() -> None:
    from barnabas.testing import BrokerCluster, BrokerProcess  # noqa: PLC0415

    for owner, name in re.findall(r"`(broker|cluster)\.(\w+)\(", TEXT):
        assert hasattr({"broker": BrokerProcess, "cluster": BrokerCluster}[owner], name), (owner, name)
