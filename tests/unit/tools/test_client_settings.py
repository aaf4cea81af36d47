"""The types of the clients' settings and their reference page follow from the declarations."""

from __future__ import annotations

import runpy
from pathlib import Path

TOOL = Path(__file__).parents[3] / "tools" / "client_settings.py"


def test_types_and_page_follow_the_declarations() -> None:
    tool = runpy.run_path(str(TOOL))
    assert tool["TYPES"].read_text(encoding="utf-8") == tool["types"](), "run: python tools/client_settings.py"
    assert tool["PAGE"].read_text(encoding="utf-8") == tool["page"](), "run: python tools/client_settings.py"
