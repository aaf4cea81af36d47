"""The parts that all scenarios of the console's suite share: the browser, the clusters, and the checks of each page."""

from __future__ import annotations

import contextlib
import importlib
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, expect
from published_tests import CACHE_FOLDER

sys.path.insert(0, str(Path(__file__).parents[1]))
# these modules are checked by pytest, not by mypy
browsers: Any = importlib.import_module("tests.support.browser")
running_console: Any = importlib.import_module("tests.support.console_process").running_console
BrokerProcess: Any = importlib.import_module("tests.support.broker_process").BrokerProcess
wait_until: Any = importlib.import_module("tests.support.reading").wait_until

AXE = "4.14.1"
WAYS = ("light", "dark", "narrow")
SLOW_MS = 60_000
WRONG_PLURAL = re.compile(
    r"(?<![\d.,:-])1 (topics|groups|records|partitions|brokers|subjects|ACLs|members|files|snapshots|findings)\b"
)
expect.set_options(timeout=SLOW_MS)
DEFECTS = re.compile(r"Traceback|has a defect|Internal Server Error|\bNone\b|<barnabas\.|\u202e")
"""Texts of a page that shows a defect of the console. U+202E reverses the text that follows."""


class Suite:
    """The browser, the places and the faults, which all scenarios share.

    :param kafka: run the clusters of the scenarios with Apache Kafka instead of Barnabas.
    :ivar faults: what is wrong, one line each.
    """

    def __init__(self, browser: Browser, axe: Path, pictures: Path | None, folder: Path, *, kafka: bool) -> None:
        self.browser = browser
        self.axe = axe
        self.pictures = pictures
        self.folder = folder
        self.kafka = kafka
        self.faults: list[str] = []

    def say(self, text: str) -> None:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()

    def fault(self, text: str) -> None:
        self.faults.append(text)
        self.say(f"FAULT: {text}")

    @contextlib.contextmanager
    def tab(self, url: str, way: str = "light", **options: Any) -> Iterator[Any]:
        """Open a tab, and note its problems in the end.

        :param options: the options of the browser's context, such as the cookies of a signed-in user.
        """
        tab = browsers.Tab(self.browser, url, way, **options)
        try:
            yield tab
        finally:
            for problem in tab.problems:
                self.fault(problem)
            tab.close()

    def show_all(
        self,
        name: str,
        url: str,
        paths: Sequence[str],
        statuses: Mapping[str, tuple[int, ...]] | None = None,
        **options: Any,
    ) -> None:
        """Show pages in all ways, and look for faults in each.

        :param statuses: the possible statuses of the pages that may have another status than 200.
        """
        for way in WAYS:
            with self.tab(url, way, **options) as tab:
                for path in paths:
                    self.show(tab, name, path, *(statuses or {}).get(path, ()))

    def show(self, tab: Any, name: str, path: str, *statuses: int) -> None:
        """Open a page, and look for faults.

        :param statuses: the expected status, or the possible ones; default: 200.
        """
        tab.expects_failures = any(each != 200 for each in statuses)
        response = tab.page.goto(tab.url + path, wait_until="load")
        if response is None or response.status not in (statuses or (200,)):
            self.fault(f"{path} has the status {response and response.status}, not {statuses or 200}")
        paint_ms = tab.first_paint_ms()
        expect(tab.page.locator("progress")).to_have_count(0, timeout=SLOW_MS)
        if "data-chart" in tab.page.content():
            expect(tab.page.locator("[data-chart] canvas")).to_be_visible()
        self.check(tab, path)
        self.picture(tab, f"{name}{path}-{tab.way}")
        self.say(f"{name} {tab.way} {path[:100]}: first paint after {paint_ms:.0f} ms")

    def check(self, tab: Any, path: str) -> None:
        """Look for faults in the page that a tab shows."""
        for fault in tab.serious_faults(self.axe):
            self.fault(fault)
        if tab.overflow() > 0:
            self.fault(f"{path} ({tab.way}) is {tab.overflow()} pixels wider than the window")
        text = tab.page.locator("body").inner_text()
        for pattern in (WRONG_PLURAL, DEFECTS):
            for found in pattern.finditer(text):
                self.fault(f"{path} says {text[max(0, found.start() - 30) : found.end() + 30]!r}")

    def picture(self, tab: Any, name: str) -> None:
        """Take a picture of the whole page if the user wants pictures."""
        if self.pictures is not None:
            file = re.sub(r"\W+", "-", name)[:100] + ".png"
            tab.page.screenshot(path=str(self.pictures / file), full_page=True)


@contextlib.contextmanager
def new_broker(suite: Suite, name: str, **settings: str) -> Iterator[Any]:
    """Run a broker of Barnabas until the block ends."""
    broker = BrokerProcess(suite.folder / name, settings)
    broker.start()
    try:
        yield broker
    finally:
        broker.close()


@contextlib.contextmanager
def new_cluster(suite: Suite, name: str, **settings: str) -> Iterator[tuple[str, int]]:
    """Run a broker of Barnabas or of Apache Kafka. Yield its address and the id of its process."""
    if not suite.kafka:
        with new_broker(suite, name, **settings) as broker:
            yield broker.bootstrap, broker.pid
        return
    kafka: Any = importlib.import_module("bench.peers.kafka").Kafka

    class OneNode(kafka):  # type: ignore[misc]
        def more_properties(self) -> str:
            return "".join(f"{key.replace('_', '.')}={value}\n" for key, value in settings.items())

    folder = suite.folder / f"kafka-{name}"
    folder.mkdir()
    node = OneNode(folder)
    node.start()
    try:
        suite.say(f"Apache Kafka {node.version()}")
        yield node.address, node.process.pid
    finally:
        node.stop()


def axe_file() -> Path:
    """Install axe-core unless it is already installed. Return its script."""
    folder = CACHE_FOLDER / f"axe-core-{AXE}"
    file = folder / "node_modules/axe-core/axe.min.js"
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        command = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", f"axe-core@{AXE}"]
        subprocess.run(command, cwd=folder, check=True)
    return file
