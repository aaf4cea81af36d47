"""One path through the console in a real browser; `make suites SUITE=console` shows all pages in all ways."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

import barnabas as client
from tests.support.broker_process import BrokerProcess
from tests.support.browser import Tab, chromium, running_browser
from tests.support.console_process import running_console
from tests.support.reading import TIMEOUT_S
from tests.support.xdist_groups import BROWSER

pytestmark = [
    pytest.mark.xdist_group(BROWSER),
    pytest.mark.skipif(chromium() is None, reason="no Chromium is installed"),
]
SLOW_MS = TIMEOUT_S * 1000


def test_keyboard_reaches_a_produced_record_that_is_only_text(broker: BrokerProcess) -> None:
    with client.Admin(broker.bootstrap) as admin:
        admin.create_topic("clicks")
        admin.create_topic("views")
        admin.set_group_offsets("readers", {("clicks", 0): 0})
    with running_console(broker.bootstrap, "--allow-changes") as console, running_browser() as browser:
        tab = Tab(browser, console.url, "narrow")
        page = tab.open("/topics")
        page.get_by_label("Filter").press_sequentially("clic")
        expect(page.get_by_role("link", name="views")).to_have_count(0, timeout=SLOW_MS)
        page.get_by_role("link", name="clicks").press("Enter")
        expect(page.locator("[data-chart] canvas")).to_be_visible(timeout=SLOW_MS)
        follower = Tab(browser, console.url)
        follower.open("/records?topic=clicks").get_by_role("button", name="Follow new records").press("Enter")
        expect(follower.page.get_by_role("status")).to_have_text("Waiting for new records.", timeout=SLOW_MS)
        page.get_by_role("link", name="Produce a record").press("Enter")
        page.get_by_label("Value", exact=True).press_sequentially("<script>alert(1)</script>")
        page.get_by_role("button", name="Send").press("Enter")
        expect(page.locator("pre").last).to_have_text("<script>alert(1)</script>", timeout=SLOW_MS)
        expect(follower.page.get_by_role("log")).to_contain_text("<script>alert(1)</script>", timeout=SLOW_MS)
        tab.open("/group/reset?name=readers&to=latest")
        page.get_by_role("button", name="Set these offsets").press("Enter")
        expect(page.get_by_role("heading", name="readers")).to_be_visible(timeout=SLOW_MS)
        assert tab.problems == follower.problems == []
        assert tab.overflow() == 0
