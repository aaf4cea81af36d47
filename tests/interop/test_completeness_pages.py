"""The completeness pages of the console beside a real broker with an audited topic that has lost records."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from urllib.parse import parse_qs, urlencode, urlparse

import pytest

import barnabas
from tests.interop.test_audit import TOPIC, lose_a_batch, make_topic, send
from tests.support.broker_process import BrokerProcess
from tests.support.console_process import Console, running_console
from tests.support.reading import wait_until

PAGE = "/completeness/topic?topic=clicks"


def whole(console: Console, path: str) -> str:
    """Return a page whose audit has ended."""
    found = ""

    def has_ended() -> bool:
        nonlocal found
        found = console.page(path)
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
    listed = console.page("/completeness")
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
    listed = console.page("/completeness")
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
    ],
    ids=range(7),
)  # fmt: skip
def test_wrong_input_is_answered_in_words(console: Console, path: str, status: int) -> None:
    found, text, _ = console.get(path)
    assert (found, "Traceback" in text) == (status, False)
