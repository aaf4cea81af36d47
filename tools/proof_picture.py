"""Draw the result of an audit as a strip with one row per tier, for the README.

make demo FAULT=lose                # loads a topic and deletes one row of the table
barnabas up --data .barnabas/broker    # in another terminal
barnabas audit departures --warehouse .barnabas/warehouse --json > audit.json
.venv/bin/python tools/proof_picture.py audit.json docs/images/proof.png
"""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from barnabas.reports.pictures import FAINT, INK, save

COMPLETE, INCOMPLETE = "#4a9d7c", "#c8102e"
TIERS = {"produced": "acknowledged to the producer", "stored": "stored in the log", "loaded": "loaded into the table"}


def draw(audit: dict[str, Any]) -> Figure:
    """Draw the output of `barnabas audit --json` with windows of one day. Return the picture."""
    figure = Figure(figsize=(10, 2.9), dpi=110)
    axes = figure.subplots()
    dates = [datetime.fromtimestamp(each["window"] / 1000, UTC) for each in audit["windows"]]
    days = [(date - dates[0]).days for date in dates]
    for row, tier in enumerate(TIERS):
        colors = [COMPLETE if each[tier] == each["produced"] else INCOMPLETE for each in audit["windows"]]
        axes.bar(days, [0.72] * len(days), width=0.8, bottom=row + 0.14, align="edge", color=colors, linewidth=0)
    for day, date, each in zip(days, dates, audit["windows"], strict=True):
        missing = each["produced"] - each["loaded"]
        if missing:
            note = f"{date:%-d %B}: {missing} of {each['produced']:,} rows is missing in the table"
            arrow = {"arrowstyle": "->", "color": INCOMPLETE}
            axes.annotate(note, (day + 0.5, 2.9), (day + 0.5, 3.35), ha="right", color=INCOMPLETE, arrowprops=arrow)
    totals = {tier: sum(each[tier] for each in audit["windows"]) for tier in TIERS}
    axes.set_yticks(
        [row + 0.5 for row in range(len(TIERS))], [f"{title}\n{totals[tier]:,}" for tier, title in TIERS.items()]
    )
    axes.set(xlim=(days[0] - 1, days[-1] + 2), ylim=(3.7, 0))
    months = [(day, date) for day, date in zip(days, dates, strict=True) if date.day == 1]
    axes.set_xticks([day for day, _ in months], [f"{date:%b}" for _, date in months])
    axes.tick_params(length=0, labelsize=8, labelcolor=INK)
    for label in axes.get_xticklabels():
        label.set_horizontalalignment("left")
    for spine in axes.spines.values():
        spine.set_visible(False)
    figure.suptitle(f"topic {audit['topic']}: one column per day of event time in 2013", x=0.01, ha="left", fontsize=10)
    figure.text(0.01, 0.02, "make demo FAULT=lose; barnabas audit --json", color=FAINT, fontsize=7)
    figure.tight_layout(rect=(0, 0.02, 1, 1))
    return figure


def main() -> int:
    """Draw the audit result in the file of the first argument, and write the picture to the file of the second
    argument."""
    source, target = (Path(each) for each in sys.argv[1:])
    save(draw(json.loads(source.read_text(encoding="utf-8"))), target)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
