"""Writes docs/reference/log-events.md from the events of log lines (`barnabas.log_lines`).

`python tools/log_events_reference.py` writes it. A test compares the page with the events.
"""

from __future__ import annotations

import sys
from pathlib import Path

from barnabas.log_lines import LogEvent

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "log-events.md"

HEAD = """\
# Events of log lines

With `--log-format json` each line that an operator acts on has an `event`. Its name stays the same over releases, while
the text may change. Alerts go by the event. `python tools/log_events_reference.py` writes this page from the code.

Lines with the levels `ERROR` and `CRITICAL` have one. A `WARNING` has one if an operator may have to act.

| event | what has happened, and what to do |
|---|---|
"""


def page() -> str:
    """Return the page as it should be."""
    return HEAD + "".join(f"| `{each.value}` | {each.advice} |\n" for each in sorted(LogEvent))


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    sys.stdout.write(f"wrote {PAGE.name}\n")
