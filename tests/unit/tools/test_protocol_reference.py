"""docs/reference/protocol.md describes each API as its declaration and its handler do."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

TOOL = Path(__file__).parents[3] / "tools" / "protocol_reference.py"


def test_each_api_on_the_page_is_described_as_in_its_code() -> None:
    tool = runpy.run_path(str(TOOL))
    text = tool["PAGE"].read_text(encoding="utf-8")
    keys = [int(key) for key in re.findall(r"^\| (\d+) \|", text, re.MULTILINE)]
    assert text == tool["page"](keys), "run: python tools/protocol_reference.py"
