"""Show all pages of the console in Chromium: on an empty, a small and a large cluster, and while a broker is killed.

    .venv/bin/python tools/console_suite.py
    .venv/bin/python tools/console_suite.py --pictures /tmp/pictures --only large
    .venv/bin/python tools/console_suite.py --only small --bootstrap localhost:9092

npm installs axe-core into the cache directory. The suite prints a line for each fault and each figure.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, expect
from published_tests import CACHE_FOLDER

import barnabas

sys.path.insert(0, str(Path(__file__).parents[1]))
# these modules are checked by pytest, not by mypy
browsers: Any = importlib.import_module("tests.support.browser")
running_console: Any = importlib.import_module("tests.support.console_process").running_console
BrokerProcess: Any = importlib.import_module("tests.support.broker_process").BrokerProcess
wait_until: Any = importlib.import_module("tests.support.reading").wait_until

AXE = "4.14.1"
WAYS = ("light", "dark", "narrow")
TOPICS, PARTITIONS, GROUPS = 1_000, 10, 500
SLOW_MS = 60_000
HOSTILE = (
    b"<script>alert(1)</script>",
    b"\"'><img src=x onerror=alert(1)>",
    b"a\x00\x1b[31m",
    "\u202eright to left".encode(),
    b"\xff\xfe",
    json.dumps({"<b>": "<i>", "user": {"id": 7, "text": "x" * 300}}).encode(),
    b"[" * 100_000,
    b'{"a":' * 300 + b"1" + b"}" * 300,
    b'{"lone": "\\ud800"}',
    ("\u202e\u200b" * 5_000).encode(),
    b"x" * 10_000_000,
    None,
)
EMPTY_PAGES = ("/", "/topics", "/topics/tree", "/groups", "/group?name=absent", "/security", "/nowhere")
SMALL_PAGES = (
    "/",
    "/topics",
    "/topics/tree",
    "/topic?name=clicks",
    "/records?topic=clicks&from=beginning",
    *(f"/record?topic=clicks&partition=0&offset={number}" for number in range(len(HOSTILE))),
    "/produce?topic=clicks",
    "/groups",
    "/group?name=readers",
    "/group/reset?name=readers&to=earliest",
    "/security",
)
LARGE_PAGES = ("/", "/topics", "/topics?page=5", "/topics/tree", "/groups", "/group?name=group-001")


class Suite:
    """The browser, the places and the faults, which all scenarios share.

    :ivar faults: what is wrong, one line each.
    """

    def __init__(self, browser: Browser, axe: Path, pictures: Path | None, folder: Path) -> None:
        self.browser = browser
        self.axe = axe
        self.pictures = pictures
        self.folder = folder
        self.faults: list[str] = []

    def say(self, text: str) -> None:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()

    def fault(self, text: str) -> None:
        self.faults.append(text)
        self.say(f"FAULT: {text}")

    @contextlib.contextmanager
    def tab(self, url: str, way: str = "light") -> Iterator[Any]:
        """Open a tab, and note its problems in the end."""
        tab = browsers.Tab(self.browser, url, way)
        try:
            yield tab
        finally:
            for problem in tab.problems:
                self.fault(problem)
            tab.close()

    def show_all(self, name: str, url: str, paths: Sequence[str]) -> None:
        """Show pages in all ways, and look for faults in each."""
        for way in WAYS:
            with self.tab(url, way) as tab:
                for path in paths:
                    tab.expects_failures = path in ("/group?name=absent", "/nowhere")
                    tab.open(path)
                    paint_ms = tab.first_paint_ms()
                    if "data-chart" in tab.page.content():
                        expect(tab.page.locator("[data-chart] canvas")).to_be_visible()
                    for fault in tab.serious_faults(self.axe):
                        self.fault(fault)
                    if tab.overflow() > 0:
                        self.fault(f"{path} ({way}) is {tab.overflow()} pixels wider than the window")
                    if self.pictures is not None:
                        file = re.sub(r"\W+", "-", f"{name}{path}-{way}")[:100] + ".png"
                        tab.page.screenshot(path=str(self.pictures / file))
                    self.say(f"{name} {way} {path}: first paint after {paint_ms:.0f} ms")


def empty(suite: Suite) -> None:
    """Show the pages of a cluster without topics and groups."""
    with new_broker(suite, "empty") as broker, running_console(broker.bootstrap, "--allow-changes") as console:
        suite.show_all("empty", console.url, EMPTY_PAGES)


def fill_small(bootstrap: str) -> None:
    """Create a topic with hostile records, and a group with lag."""
    with barnabas.Admin(bootstrap) as admin:
        admin.create_topic("clicks", 2, config={"max.message.bytes": "20000000"})
        admin.create_topic("views.of.pages", 3)
        admin.set_group_offsets("readers", {("clicks", 0): 1, ("clicks", 1): 0})
    with barnabas.Producer(bootstrap, max_request_size=20_000_000) as producer:
        for number, value in enumerate(HOSTILE):
            producer.send("clicks", value, key=b"k%d" % number, partition=0, headers=[("<h>", b"<v>")]).result()


def small(suite: Suite, bootstrap: str = "") -> None:
    """Show all pages of a small cluster, and use them with the keyboard only."""
    with ExitStack() as stack:
        if not bootstrap:
            bootstrap = stack.enter_context(new_broker(suite, "small", message_max_bytes="20000000")).bootstrap
        fill_small(bootstrap)
        console = stack.enter_context(running_console(bootstrap, "--allow-changes"))
        suite.show_all("small", console.url, SMALL_PAGES)
        with suite.tab(console.url) as tab:
            search_and_sort(tab)
            produce_and_follow(suite, tab)
            reset(tab)
            lag_moves(tab, bootstrap)
            keyboard(suite, tab)
        suite.say(f"the console needs at most {peak_mb(console.pid):.0f} MB after hostile records of 10 MB")


def search_and_sort(tab: Any) -> None:
    page = tab.open("/topics")
    page.get_by_label("Filter").fill("views")
    expect(page.get_by_role("link", name="clicks")).to_have_count(0)
    page.get_by_label("Filter").fill("")
    expect(page.get_by_role("link", name="clicks")).to_have_count(1)
    page.get_by_role("link", name="Partitions").click()
    heading = page.get_by_role("columnheader", name="Partitions")
    expect(heading).to_have_attribute("aria-sort", "descending")
    expect(page.locator("tbody th").first).to_have_text("views.of.pages")


def produce_and_follow(suite: Suite, tab: Any) -> None:
    with suite.tab(tab.url, "narrow") as follower:
        page = follower.open("/records?topic=views.of.pages")
        page.get_by_role("button", name="Follow new records").click()
        expect(page.get_by_role("status")).to_have_text("Waiting for new records.")
        form = tab.open("/produce?topic=views.of.pages")
        form.get_by_label("Key").fill("<k>")
        form.get_by_label("Value", exact=True).fill("<img src=x onerror=alert(1)>")
        form.get_by_label("Headers").fill("name: value")
        form.get_by_role("button", name="Send").click()
        expect(form.get_by_text("<img src=x onerror=alert(1)>")).to_be_visible()
        expect(page.get_by_role("log")).to_contain_text("<img src=x onerror=alert(1)>")
        for fault in follower.serious_faults(suite.axe):
            suite.fault(fault)


def reset(tab: Any) -> None:
    page = tab.open("/group?name=readers")
    page.get_by_role("link", name="Reset offsets").click()
    page.get_by_label("New position").select_option("latest")
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_role("region", name="Preview")).to_contain_text(str(len(HOSTILE)))
    page.get_by_role("button", name="Set these offsets").click()
    expect(page.get_by_role("region", name="Offsets")).to_contain_text(str(len(HOSTILE)))


def lag_moves(tab: Any, bootstrap: str) -> None:
    """Wait until the chart shows the lag before and after new records."""
    page = tab.open("/group?name=readers")
    with barnabas.Producer(bootstrap) as producer:
        for _ in range(77):
            producer.send("clicks", b"{}", partition=1)
    expect(page.locator("[data-chart]")).to_have_attribute("aria-label", "Lag: 77 now", timeout=SLOW_MS)


def keyboard(suite: Suite, tab: Any) -> None:
    """Check that Tab reaches everything that a mouse reaches, and that the focus is visible."""
    script = """() => {
      const place = document.activeElement;
      return [place.outerHTML.slice(0, 80), getComputedStyle(place).outlineStyle];
    }"""
    for path in (
        "/",
        "/topics",
        "/records?topic=clicks&from=beginning",
        "/produce?topic=clicks",
        "/group?name=readers",
    ):
        page = tab.open(path)
        wanted = page.locator(":is(a[href], button, select, input, textarea):visible").count()
        reached: set[str] = set()
        for _ in range(wanted + 30):
            page.keyboard.press("Tab")
            place, outline = page.evaluate(script)
            if not place.startswith("<body"):
                reached.add(place)
                if outline == "none":
                    suite.fault(f"{path}: the focus of {place} is invisible")
        if not reached:
            suite.fault(f"{path}: Tab reaches nothing")


def killed(suite: Suite) -> None:
    """Kill a broker while pages are open: the pages say so, and recover."""
    with new_broker(suite, "killed") as broker, running_console(broker.bootstrap, "--allow-changes") as console:
        fill_small_without_large_records(broker.bootstrap)
        with ExitStack() as stack:
            tabs = {path: stack.enter_context(suite.tab(console.url)) for path in ("/", "/topic?name=clicks")}
            for path, tab in tabs.items():
                tab.open(path)
            live = stack.enter_context(suite.tab(console.url))
            live.open("/records?topic=clicks").get_by_role("button", name="Follow new records").click()
            expect(live.page.get_by_role("status")).to_have_text("Waiting for new records.")
            every = [*tabs.values(), live]
            for tab in every:
                tab.expects_failures = True
            broker.kill()
            expect(tabs["/"].page.get_by_role("alert")).to_contain_text("tries again", timeout=SLOW_MS)
            expect(live.page.get_by_role("status")).to_contain_text("Trying again", timeout=SLOW_MS)
            whole = stack.enter_context(suite.tab(console.url))
            whole.expects_failures = True
            whole.open("/groups")
            expect(whole.page.get_by_text("tries again every few seconds")).to_be_visible()
            if suite.pictures is not None:
                for name, tab in {"overview": tabs["/"], "live": live, "groups": whole}.items():
                    tab.page.screenshot(path=str(suite.pictures / f"killed-{name}.png"))
            broker.restart()
            expect(tabs["/"].page.locator("#trouble")).to_be_hidden(timeout=SLOW_MS)
            expect(whole.page.get_by_role("link", name="readers")).to_be_visible(timeout=SLOW_MS)
            with barnabas.Producer(broker.bootstrap) as producer:

                def is_followed() -> bool:
                    producer.send("clicks", b"after").result()
                    return "after" in live.page.get_by_role("log").inner_text()

                wait_until(is_followed, "the live page follows again")
            for tab in every:
                tab.expects_failures = False
    suite.say("pages say that a broker is dead, and recover")


def fill_small_without_large_records(bootstrap: str) -> None:
    with barnabas.Admin(bootstrap) as admin:
        admin.create_topic("clicks")
        admin.set_group_offsets("readers", {("clicks", 0): 0})


def large(suite: Suite) -> None:
    """Show the pages of 1,000 topics and 500 groups, and measure what they cost."""
    with new_broker(suite, "large") as broker:
        with barnabas.Admin(broker.bootstrap) as admin:
            for number in range(TOPICS):
                admin.create_topic(topic_name(number), PARTITIONS)
            for number in range(GROUPS):
                places = {(topic_name(number), partition): 0 for partition in range(PARTITIONS)}
                admin.set_group_offsets(f"group-{number:03d}", places)
        with running_console(broker.bootstrap) as console:
            suite.show_all("large", console.url, LARGE_PAGES)
            with suite.tab(console.url) as tab:
                page = tab.open("/topics")
                page.get_by_label("Filter").fill("0999")
                expect(page.locator("tbody tr")).to_have_count(1)
                paints = []
                for _ in range(10):
                    tab.open("/topics")
                    paints.append(tab.first_paint_ms())
                    time.sleep(2.5)  # so that the console has to ask the brokers again
            suite.say(f"first paint of {TOPICS} topics: {' '.join(f'{each:.0f}' for each in sorted(paints))} ms")
            used_s, since_s = cpu_s(broker.pid), time.monotonic()
            own_s = cpu_s(console.pid)
            time.sleep(60)
            passed_s = time.monotonic() - since_s
            suite.say(
                f"sampling {TOPICS * PARTITIONS} partitions and {GROUPS} groups takes"
                f" {(cpu_s(broker.pid) - used_s) / passed_s:.1%} of a core of the broker,"
                f" {(cpu_s(console.pid) - own_s) / passed_s:.1%} of a core of the console"
            )
            suite.say(f"the console needs at most {peak_mb(console.pid):.0f} MB")


def topic_name(number: int) -> str:
    return f"team{number % 7}.area{number % 13}.topic-{number:04d}"


def cpu_s(pid: int) -> float:
    """Return the CPU time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def peak_mb(pid: int) -> float:
    """Return the largest resident memory of a process."""
    found = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    assert found
    return int(found[1]) / 1024


@contextlib.contextmanager
def new_broker(suite: Suite, name: str, **settings: str) -> Iterator[Any]:
    broker = BrokerProcess(suite.folder / name, settings)
    broker.start()
    try:
        yield broker
    finally:
        broker.close()


def axe_file() -> Path:
    """Install axe-core unless it is already installed. Return its script."""
    folder = CACHE_FOLDER / f"axe-core-{AXE}"
    file = folder / "node_modules/axe-core/axe.min.js"
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        command = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", f"axe-core@{AXE}"]
        subprocess.run(command, cwd=folder, check=True)
    return file


SCENARIOS: Mapping[str, Callable[..., None]] = {"empty": empty, "small": small, "killed": killed, "large": large}


def main() -> int:
    """Run the scenarios. Return 1 if there are faults."""
    parser = argparse.ArgumentParser(description="Show all pages of the console in Chromium.")
    parser.add_argument("--checkouts", type=Path, help="without effect")
    parser.add_argument("--pictures", type=Path, help="a folder for pictures of all pages")
    parser.add_argument("--only", choices=SCENARIOS, action="append", help="a scenario; repeatable; default: all")
    parser.add_argument("--bootstrap", default="", help="an empty cluster for the scenario `small`")
    given = parser.parse_args()
    if given.pictures is not None:
        given.pictures.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, browsers.running_browser() as browser:
        suite = Suite(browser, axe_file(), given.pictures, Path(folder))
        for name in given.only or SCENARIOS:
            if name == "small":
                small(suite, given.bootstrap)
            else:
                SCENARIOS[name](suite)
    suite.say(f"{len(suite.faults)} faults")
    return 1 if suite.faults else 0


if __name__ == "__main__":
    sys.exit(main())
