"""A real browser: Debian's Chromium, driven by playwright."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, ConsoleMessage, Page, sync_playwright

from tests.support.reading import TIMEOUT_S, wait_until

FAILURES = ("Failed to load resource", "Response Status Error Code")
"""The errors that the browser and htmx write for a failed request."""
OPTIONS = (
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
VIEWPORTS: Mapping[str, Mapping[str, Any]] = {
    "light": {"viewport": {"width": 1200, "height": 800}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1200, "height": 800}, "color_scheme": "dark"},
    "narrow": {"viewport": {"width": 400, "height": 800}, "color_scheme": "dark"},
}
"""The ways in which a page is shown."""


def chromium() -> str | None:
    """Return the path of Chromium; None if the machine has none."""
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


@contextlib.contextmanager
def running_browser() -> Iterator[Browser]:
    """Run a browser until the block ends."""
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium(), args=list(OPTIONS))
        try:
            yield browser
        finally:
            browser.close()


class Tab:
    """A tab that collects the errors of the pages.

    :ivar problems: errors in the console of the browser, such as violations of the content security policy;
        exceptions; requests to other hosts; and dialogs, which only a script of an attacker opens.
    """

    def __init__(self, browser: Browser, url: str, way: str = "light", **options: Any) -> None:
        self.url = url
        self.way = way
        self.context = browser.new_context(**VIEWPORTS[way], **options)
        self.context.set_default_timeout(TIMEOUT_S * 1000)
        self.page: Page = self.context.new_page()
        self.problems: list[str] = []
        self.expects_failures = False
        """True while the test provokes responses that the browser reports as failures."""
        self.page.on("console", self._note)
        self.page.on("pageerror", lambda error: self.problems.append(f"{self.page.url}: {error}"))
        self.page.on("dialog", self._on_dialog)
        self.page.on("request", self._check_host)

    def _note(self, message: ConsoleMessage) -> None:
        is_expected = self.expects_failures and any(each in message.text for each in FAILURES)
        if message.type in ("error", "warning") and not is_expected:
            self.problems.append(f"{self.page.url}: {message.text}")

    def _on_dialog(self, dialog: Any) -> None:
        self.problems.append(f"{self.page.url}: a dialog {dialog.message!r}")
        dialog.dismiss()

    def _check_host(self, request: Any) -> None:
        if not request.url.startswith((self.url, "data:", "blob:")):
            self.problems.append(f"{self.page.url} asks another host: {request.url}")

    def open(self, path: str) -> Page:
        """Open a page of the console."""
        self.page.goto(self.url + path, wait_until="load")
        return self.page

    def first_paint_ms(self) -> float:
        """Return the time from the request of the page to the first paint of its content."""
        script = "() => performance.getEntriesByName('first-contentful-paint').map(each => each.startTime)"
        found: list[float] = []
        wait_until(lambda: found.extend(self.page.evaluate(script)) or found, "the page is painted")
        return found[0]

    def overflow(self) -> int:
        """Return the number of pixels by which the page is wider than the window."""
        script = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
        found: int = self.page.evaluate(script)
        return found

    def serious_faults(self, axe: Path) -> list[str]:
        """Return the faults of accessibility that axe-core finds and calls serious or critical."""
        if not self.page.evaluate("() => 'axe' in window"):
            self.page.evaluate(axe.read_text(encoding="utf-8"))
        found = self.page.evaluate("() => axe.run(document, {resultTypes: ['violations']})")
        return [
            f"{self.page.url} ({self.way}): {each['id']}: {node['html'][:150]}"
            for each in found["violations"]
            if each["impact"] in ("serious", "critical")
            for node in each["nodes"]
        ]

    def close(self) -> None:
        self.context.close()
