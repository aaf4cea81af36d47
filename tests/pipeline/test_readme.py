"""The README's Spark snippet runs as it stands, but for the address of the broker."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import barnabas
from tests.support.xdist_groups import SPARK_PROGRAMS

pytestmark = pytest.mark.xdist_group(SPARK_PROGRAMS)

README = Path(__file__).resolve().parents[2] / "README.md"


@pytest.mark.timeout(600)
def test_spark_snippet_reads_and_loads_the_topic(broker, tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    (snippet,) = [code for code in blocks if "barnabas.spark" in code]
    with barnabas.Producer(broker.bootstrap) as producer:
        producer.send_many("clicks", [b"/home", b"/jobs"])
    program = snippet.replace("localhost:9092", broker.bootstrap)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path, timeout=500, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "|        0|    2|" in done.stdout
    assert (tmp_path / "warehouse").is_dir()
