"""The completeness pages of the console beside a real broker with an audited topic that has lost records."""

from __future__ import annotations

import html
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlparse

import pytest

import barnabas
from tests.interop.test_audit import TOPIC, lose_a_batch, make_topic, send
from tests.support.broker_process import BrokerProcess
from tests.support.console_process import Console, running_console
from tests.support.reading import TIMEOUT_S, wait_until
from tests.support.secured_broker import PASSWORD, USER, secured_broker

ROOT = Path(__file__).resolve().parents[2]
PAGE = "/completeness/topic?topic=clicks"


def whole(console: Console, path: str, **headers: str) -> str:
    """Return a page whose audit has ended."""
    found = ""

    def has_ended() -> bool:
        nonlocal found
        found = console.page(path, **headers)
        return "<progress" not in found

    wait_until(has_ended, lambda: found)
    return found


def links(page: str, path: str) -> list[str]:
    return [html.unescape(each) for each in re.findall(rf'href="({path}[^"]*)"', page)]


@pytest.fixture(scope="module")
def lost() -> list[int]:
    """The first sequence number and the number of lost records; `console` adds them."""
    return []


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory, lost: list[int]) -> Iterator[Console]:
    broker = BrokerProcess(tmp_path_factory.mktemp("completeness") / "data")
    broker.start()
    try:
        make_topic(broker.bootstrap)
        send(broker.bootstrap)
        lost += lose_a_batch(broker)
        with barnabas.Admin(broker.bootstrap) as admin:
            admin.create_topic("plain", 1)
        with running_console(broker.bootstrap) as running:
            yield running
    finally:
        broker.stop()


def test_clicks_lead_from_the_overview_to_the_neighbours_of_lost_records(console: Console, lost: list[int]) -> None:
    assert "/completeness" in links(console.page("/"), "/completeness")
    listed = whole(console, "/completeness")
    assert PAGE in links(listed, "/completeness/topic")
    strip = whole(console, "/completeness/strip?topic=clicks")
    assert "stored: 1 complete, 2 wrong" in strip
    assert "produced: 3 complete" in strip
    wrong = re.findall(r'<a class="cell wrong wide" href="([^"]+)" title="([^"]+)"', strip)
    assert sum(int(title.split(": ")[1].split()[0]) for _link, title in wrong) == lost[1]
    window = whole(console, html.unescape(wrong[0][0]).partition("#")[0])
    (gap,) = links(window, "/completeness/neighbours")
    assert parse_qs(urlparse(gap).query)["first"] == [str(lost[0])]
    found = console.page(gap)
    before, after = links(found, "/record\\?")
    for link, value in ((before, lost[0] - 1), (after, lost[0] + lost[1])):
        assert f"{value * 3 + 1}" in console.page(link)  # the values of partition 1


def test_page_of_a_topic_has_watermarks_findings_and_a_table_of_windows(console: Console, lost: list[int]) -> None:
    page = whole(console, PAGE)
    assert "complete until <span" in page
    assert f">{lost[0]} to {lost[0] + lost[1] - 1}</a>" in page
    assert "shop on" in page
    assert "Windows as a table" in page
    assert "<dt>loaded" not in page  # without a warehouse, no tier of tables
    first = whole(console, f"{PAGE}&from=0&until=60000")
    assert "The audit found no problems." in first


def test_topics_without_reports_are_listed_apart(console: Console) -> None:
    listed = whole(console, "/completeness")
    assert "1 topic without reports" in listed
    assert "no records" in whole(console, "/completeness/topic?topic=plain")


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/completeness/topic?topic=absent", 404),
        ("/completeness/strip?topic=absent", 404),
        ("/completeness/topic?topic=clicks&from=x", 400),
        ("/completeness/neighbours?topic=clicks&partition=0", 400),
        ("/completeness/neighbours?" + urlencode({
            "topic": TOPIC, "partition": 9, "producer": 0, "epoch": 0, "first": 1, "count": 1,
        }), 404),
        ("/completeness/neighbours?" + urlencode({
            "topic": TOPIC, "partition": 0, "producer": 99, "epoch": 0, "first": 0, "count": 10**17,
        }), 200),
        ("/completeness/topic?topic=clicks&from=999999999999999999&until=0", 200),
        ("/table?topic=clicks", 404),
        ("/table/files?topic=absent&snapshot=1", 404),
    ],
    ids=range(9),
)  # fmt: skip
def test_wrong_input_is_answered_in_words(console: Console, path: str, status: int) -> None:
    found, text, _ = console.get(path)
    assert (found, "Traceback" in text) == (status, False)


def test_audit_runs_as_the_signed_in_user(tmp_path: Path) -> None:
    with secured_broker(tmp_path) as broker:
        settings = broker.client("SASL_PLAINTEXT")
        with barnabas.Admin(**settings) as admin:
            admin.create_topic("orders", 1)
        with barnabas.Producer(**settings, audit=True) as producer:
            producer.send("orders", b"v")
        options = ["-X", "security.protocol=SASL_PLAINTEXT", "-X", "sasl.mechanism=SCRAM-SHA-256"]
        with running_console(broker.address("SASL_PLAINTEXT"), *options) as console:
            assert console.get("/completeness/topic?topic=orders")[0] == 303
            _, _, headers = console.post("/sign-in", {"user": USER, "password": PASSWORD})
            cookie = headers["set-cookie"].split(";")[0]
            assert "stored: 1 complete" in whole(console, "/completeness/topic?topic=orders", cookie=cookie)


def test_demo_leaves_a_console_running_until_ctrl_c(broker: BrokerProcess, tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from rich.console import Console;"
        "from demo.console import leave_running;"
        "from demo.screen import Screen; leave_running(sys.argv[1], Path(sys.argv[2]), 0, Screen(Console()))"
    )
    command = [sys.executable, "-c", program, broker.bootstrap, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        found = re.search(r"http://127\.0\.0\.1:(\d+)/completeness", process.stdout.readline())
        assert found
        console = Console(int(found[1]))
        assert "Completeness" in console.page("/completeness")
        process.send_signal(signal.SIGINT)
        process.wait(TIMEOUT_S)
    with pytest.raises(ConnectionRefusedError):
        console.get("/")
