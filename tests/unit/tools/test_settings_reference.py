"""docs/reference/settings.md says what the tables of settings say."""

from __future__ import annotations

import runpy
from pathlib import Path

TOOL = Path(__file__).parents[3] / "tools" / "settings_reference.py"


def test_the_page_is_up_to_date() -> None:
    tool = runpy.run_path(str(TOOL))
    assert tool["PAGE"].read_text(encoding="utf-8") == tool["page"](), "run: python tools/settings_reference.py"
