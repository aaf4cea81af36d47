"""The program that lists the modules on the path of a record (`tools/path_of.py`)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TOOL = Path(__file__).parents[2] / "tools" / "path_of.py"


def test_path_leads_from_client_to_segment_file() -> None:
    done = subprocess.run([sys.executable, TOOL], capture_output=True, text=True, timeout=300, check=True)
    produce, fetch = done.stdout.split("fetch: ")
    assert produce.startswith("produce: ")
    for module in ("client/producer/accumulator.py", "net/server_connection.py", "broker/handlers/produce.py"):
        assert f"  {module}\n" in produce
    for module in ("client/consumer/consumer.py", "net/server_connection.py", "broker/handlers/fetch.py"):
        assert f"  {module}\n" in fetch
    assert "broker/handlers/fetch.py" not in produce
    assert "broker/handlers/produce.py" not in fetch
