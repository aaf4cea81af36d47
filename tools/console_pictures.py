"""Take the pictures of the console's pages of completeness in Chromium, from a run of the demo that loses a record.

    make console-pictures                                   # runs the demo first, which takes some minutes
    make console-pictures CONSOLE=http://127.0.0.1:8082/    # with the console of a running demo

The program clicks from the overview to the lost record, as a user does, and fails if a step of this path is missing.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

FOLDER = Path(__file__).parents[1] / "docs/images"
OTHERS = Path(__file__).parents[1] / ".barnabas"
"""The folder of the pictures that the docs do not contain."""
CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
TOPIC = "departures"
TIMEOUT_MS = 60_000


@contextlib.contextmanager
def demo() -> Iterator[str]:
    """Run the demo with a fault, and return the address of its console."""
    command = [sys.executable, "-m", "demo", "--fault", "lose", "--console", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        for line in process.stdout:
            sys.stdout.write(line)
            found = re.search(r"(http://\S+/)completeness", line)
            if found:
                yield found[1]
                return
        raise SystemExit("the demo ended without a console")
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()


def take(page: Page, path: Path) -> None:
    """Write the picture of a whole page, once all its audits have ended."""
    page.wait_for_function("document.querySelectorAll('progress').length === 0", timeout=TIMEOUT_MS)
    page.screenshot(path=str(path), full_page=True)


def click_to_the_lost_record(page: Page, address: str, folder: Path, others: Path) -> None:
    """Click from the overview to the lost record, and take pictures on the way.

    :param folder: the folder of the pictures that the docs contain.
    :param others: the folder of the other pictures.
    """
    page.goto(address)
    page.get_by_role("link", name="Completeness", exact=True).click()
    page.wait_for_selector("a.cell.wrong", timeout=TIMEOUT_MS)
    take(page, folder / "console-completeness.png")
    page.get_by_role("link", name=TOPIC, exact=True).click()
    page.wait_for_selector("a.cell.wrong", timeout=TIMEOUT_MS)
    take(page, folder / "console-completeness-topic.png")
    page.get_by_role("link", name=re.compile("^lost|1 lost")).first.click()
    page.wait_for_selector("text=Lost, duplicated and open records")
    while page.locator("a.cell").count() > page.locator(".tier").count():
        page.locator("a.cell.wrong").first.click()
        page.wait_for_load_state()
    take(page, others / "console-completeness-window.png")
    page.locator("td.ranges a").first.click()
    page.wait_for_selector("text=Download the value")
    take(page, others / "console-lost-record.png")


def main(arguments: list[str]) -> None:
    """Take all pictures."""
    with contextlib.ExitStack() as stack:
        address = arguments[0] if arguments else stack.enter_context(demo())
        playwright = stack.enter_context(sync_playwright())
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        stack.callback(browser.close)
        page = browser.new_page(viewport={"width": 1200, "height": 480}, color_scheme="light")
        page.set_default_timeout(TIMEOUT_MS)
        problems: list[str] = []
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        click_to_the_lost_record(page, address, FOLDER, OTHERS)
        if problems:
            raise SystemExit(f"the browser reports errors: {problems}")


if __name__ == "__main__":
    main(sys.argv[1:])
