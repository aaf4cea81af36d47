"""Show and use all pages of the console in Chromium, beside clusters of Barnabas and of Apache Kafka.

    make suites SUITE=console
    .venv/bin/python tools/console_suite.py --only secured
    .venv/bin/python tools/console_suite.py --only small --kafka
    .venv/bin/python tools/console_suite.py --only kafka
    .venv/bin/python tools/console_suite.py --pictures /tmp/pictures --only large
    .venv/bin/python tools/console_suite.py --only small --bootstrap localhost:9092

npm installs axe-core into the cache directory. The suite prints a line for each fault and each figure.
"""

from __future__ import annotations

import argparse
import importlib
import json
import re
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import console_keyboard
import console_pictures
from console_attacks import attacks
from console_checks import SLOW_MS, Suite, axe_file, browsers, new_broker, new_cluster, running_console, wait_until
from console_clusters import cluster, secured
from console_kafka import kafka, kafka_secured
from playwright.sync_api import Error, expect

import barnabas

TOPICS, PARTITIONS, GROUPS = 1_000, 10, 500
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
CLICKS = (
    '{"type": "record", "name": "Click", "fields": [{"name": "page", "type": "string"}]}',
    '{"type": "record", "name": "Click", "fields": [{"name": "page", "type": "string"},'
    ' {"name": "user", "type": "string", "default": ""}]}',
)
SUBJECTS = {
    "clicks-value": CLICKS,
    "<img src=x onerror=alert(1)>/&?#": (
        json.dumps({"type": "record", "name": "R", "doc": "<script>alert(1)</script>\u202e", "fields": []}),
    ),
    "a.long.subject." + "x" * 200: ('"string"',),
}
CONTENTS_PAGES = (
    "/completeness",
    "/completeness/topic?topic=clicks",
    "/completeness/topic?topic=plain",
    "/schemas",
    "/schema?name=clicks-value&version=2&compare=1",
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


def empty(suite: Suite) -> None:
    """Show the pages of a cluster without topics and groups."""
    with new_cluster(suite, "empty") as (bootstrap, _), running_console(bootstrap, "--allow-changes") as console:
        suite.show_all("empty", console.url, EMPTY_PAGES, dict.fromkeys(("/group?name=absent", "/nowhere"), (404,)))


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
            bootstrap, _ = stack.enter_context(new_cluster(suite, "small", message_max_bytes="20000000"))
        fill_small(bootstrap)
        console = stack.enter_context(running_console(bootstrap, "--allow-changes"))
        suite.show_all("small", console.url, SMALL_PAGES)
        with suite.tab(console.url) as tab:
            console_keyboard.search_and_sort(tab)
            produce_and_follow(suite, tab)
            console_keyboard.produce(tab)
            console_keyboard.reset(tab, len(HOSTILE))
            lag_moves(tab, bootstrap)
            console_keyboard.focus_stays(suite, tab)
            for path in SMALL_PAGES:
                console_keyboard.walk(suite, tab, path)
        suite.say(f"the console needs at most {peak_mb(console.pid):.0f} MB after hostile records of 10 MB")


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


def lag_moves(tab: Any, bootstrap: str) -> None:
    """Wait until the chart shows the lag before and after new records."""
    page = tab.open("/group?name=readers")
    with barnabas.Producer(bootstrap) as producer:
        for _ in range(77):
            producer.send("clicks", b"{}", partition=1)
    expect(page.locator("[data-chart]")).to_have_attribute("aria-label", "Lag: 77 now", timeout=SLOW_MS)


def contents(suite: Suite) -> None:
    """Show the pages of schemas and of completeness, and click from the overview to a lost record."""
    audits: Any = importlib.import_module("tests.interop.test_audit")
    registries: Any = importlib.import_module("tests.support.registry_process")
    with ExitStack() as stack:
        if suite.kafka:
            bootstrap, _ = stack.enter_context(new_cluster(suite, "contents"))
        else:
            broker = stack.enter_context(new_broker(suite, "contents"))
            bootstrap = broker.bootstrap
        audits.make_topic(bootstrap)
        audits.send(bootstrap)
        if not suite.kafka:
            audits.lose_a_batch(broker)
        with barnabas.Admin(bootstrap) as admin:
            admin.create_topic("plain")
        registry = registries.RegistryProcess(bootstrap, suite.folder / "registry.log")
        stack.callback(registry.close)
        client = barnabas.SchemaRegistry(registry.url)
        for subject, versions in SUBJECTS.items():
            for text in versions:
                client.register(subject, barnabas.Schema(text))
        console = stack.enter_context(running_console(bootstrap, "--registry", registry.url, "--allow-changes"))
        with suite.tab(console.url) as tab:
            check_schemas(suite, tab)
            wrong = [] if suite.kafka else click_to_the_lost_record(suite, tab)
            pages = [*CONTENTS_PAGES, *("/schema?" + urlencode({"name": each}) for each in SUBJECTS), *wrong]
            for path in pages:
                console_keyboard.walk(suite, tab, path)
        suite.show_all("contents", console.url, pages)


def check_schemas(suite: Suite, tab: Any) -> None:
    """Search a subject, look at the differences of its versions, and check further schemas."""
    page = tab.open("/schemas")
    page.get_by_label("Filter").fill("clicks")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.get_by_role("link", name="clicks-value").click()
    expect(page.locator("ins").filter(has_text="user")).to_have_count(1)
    page.get_by_label("Version").select_option("1")
    page.get_by_label("Compare with").select_option("2")
    page.get_by_role("button", name="Show").click()
    expect(page.locator("del").filter(has_text="user")).to_have_count(1)
    for text, answer in (
        (CLICKS[1], "can become"),
        (CLICKS[0].replace("string", "int"), "cannot become"),
        ("{", "cannot become"),
    ):
        page.get_by_label("Schema").fill(text)
        page.get_by_role("button", name="Check").click()
        expect(page.locator("#content")).to_contain_text(f"This schema {answer} version 3")
        suite.check(tab, "/schema/check")
        suite.picture(tab, f"contents-check-{answer}")


def click_to_the_lost_record(suite: Suite, tab: Any) -> list[str]:
    """Click from the overview to the records around the lost ones. Return the paths on the way."""
    page = tab.open("/")
    page.get_by_role("link", name="Completeness", exact=True).click()
    page.locator("a.cell.wrong").first.click(timeout=SLOW_MS)
    expect(page.get_by_role("region", name="Lost, duplicated and open records")).to_be_visible(timeout=SLOW_MS)
    found = [page.url]
    page.locator("td.ranges a").first.click()
    expect(page.get_by_text("The log does not have them")).to_be_visible()
    found.append(page.url)
    page.get_by_role("link", name=re.compile("^offset ")).first.click()
    expect(page.get_by_role("link", name="Download the value")).to_be_visible()
    found.append(page.url)
    return [each.removeprefix(tab.url).partition("#")[0] for each in found]


def demo(suite: Suite) -> None:
    """Click from the overview to the record that `make demo FAULT=lose CONSOLE=1` removes."""
    with console_pictures.demo() as address, suite.tab(address.rstrip("/")) as tab:
        console_pictures.click_to_the_lost_record(tab.page, address, suite.folder, suite.folder)
        for path in ("/", "/topics", "/completeness", "/completeness/topic?topic=departures", "/groups", "/security"):
            console_keyboard.walk(suite, tab, path)
        suite.show_all(
            "demo",
            tab.url,
            (
                "/",
                "/topics",
                "/topic?name=departures",
                "/completeness",
                "/completeness/topic?topic=departures",
                "/groups",
            ),
        )


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
    with new_cluster(suite, "large") as (bootstrap, pid):
        with barnabas.Admin(bootstrap) as admin:
            for number in range(TOPICS):
                admin.create_topic(topic_name(number), PARTITIONS)
            for number in range(GROUPS):
                places = {(topic_name(number), partition): 0 for partition in range(PARTITIONS)}
                admin.set_group_offsets(f"group-{number:03d}", places)
        with running_console(bootstrap) as console:
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
            used_s, since_s = cpu_s(pid), time.monotonic()
            own_s = cpu_s(console.pid)
            time.sleep(60)
            passed_s = time.monotonic() - since_s
            suite.say(
                f"sampling {TOPICS * PARTITIONS} partitions and {GROUPS} groups takes"
                f" {(cpu_s(pid) - used_s) / passed_s:.1%} of a core of the broker,"
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


SCENARIOS: Mapping[str, Callable[..., None]] = {
    "empty": empty,
    "small": small,
    "contents": contents,
    "killed": killed,
    "large": large,
    "attacks": attacks,
    "cluster": cluster,
    "secured": secured,
    "kafka": kafka,
    "kafka-secured": kafka_secured,
    "demo": demo,
}
ON_KAFKA = ("empty", "small", "contents", "large")
"""The scenarios that also run with Apache Kafka."""


def main() -> int:
    """Run the scenarios. Return 1 if there are faults."""
    parser = argparse.ArgumentParser(description="Show all pages of the console in Chromium.")
    parser.add_argument("--checkouts", type=Path, help="without effect")
    parser.add_argument("--pictures", type=Path, help="a folder for pictures of all pages")
    parser.add_argument("--only", choices=SCENARIOS, action="append", help="a scenario; repeatable; default: all")
    parser.add_argument("--kafka", action="store_true", help="with Apache Kafka; default: with Barnabas, then with it")
    parser.add_argument("--bootstrap", default="", help="an empty cluster for the scenario `small`")
    given = parser.parse_args()
    if given.pictures is not None:
        given.pictures.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, browsers.running_browser() as browser:
        faults: list[str] = []
        for kafka in (True,) if given.kafka else (False,) if given.only else (False, True):
            own = Path(folder) / ("kafka" if kafka else "barnabas")
            own.mkdir()
            suite = Suite(browser, axe_file(), given.pictures, own, kafka=kafka)
            for name in given.only or (ON_KAFKA if kafka else SCENARIOS):
                try:
                    SCENARIOS[name](suite, *([given.bootstrap] if name == "small" else []))
                except (AssertionError, Error) as error:
                    suite.fault(f"the scenario {name} has ended early: {error}")
                    traceback.print_exc()
            faults += suite.faults
    sys.stdout.write(f"{len(faults)} faults\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
