"""The use of the console with the keyboard only: Tab reaches every control in order, and keys operate each of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from console_checks import SLOW_MS, Suite
from playwright.sync_api import expect

MARK = """() => {
  const controls = [...document.querySelectorAll('a[href], button, input, select, textarea, summary, [tabindex="0"]')]
    .filter(each => each.tabIndex >= 0 && !each.disabled && each.type !== 'hidden' && each.checkVisibility());
  controls.forEach((each, number) => { each.dataset.order = number; });
  return controls.map(each => each.outerHTML.slice(0, 120));
}"""
"""Number the controls of a page in the order of the document, which is also the order on the screen."""

FOCUSED = """() => {
  const place = document.activeElement;
  const style = getComputedStyle(place);
  const box = place.getBoundingClientRect();
  return {
    order: place === document.body ? null : Number(place.dataset.order ?? -1),
    html: place.outerHTML.slice(0, 120),
    outline: style.outlineStyle === 'none' ? 0 : parseFloat(style.outlineWidth),
    isInWindow: box.bottom > 0 && box.top < innerHeight && box.right > 0 && box.left < innerWidth,
  };
}"""
FIELDS_OF_A_TIME = 8
"""The most stops that one control has: those of a date and a time."""


def walk(suite: Suite, tab: Any, path: str) -> None:
    """Press Tab until it comes back to a control: it must reach each control, in order, with a visible focus."""
    page = tab.open(path)
    expect(page.locator("progress")).to_have_count(0, timeout=SLOW_MS)
    controls: Sequence[str] = page.evaluate(MARK)
    reached: list[int] = []
    for _ in range(len(controls) * FIELDS_OF_A_TIME):
        page.keyboard.press("Tab")
        focused = page.evaluate(FOCUSED)
        if focused["order"] == -1:  # the page has replaced this part of itself
            page.evaluate(MARK)
            focused = page.evaluate(FOCUSED)
        if focused["order"] is None or (reached and focused["order"] == reached[-1]):
            continue
        if focused["order"] in reached:
            break
        reached.append(focused["order"])
        if focused["outline"] < 2:
            suite.fault(f"{path}: the focus of {focused['html']} is invisible")
        if not focused["isInWindow"]:
            suite.fault(f"{path}: {focused['html']} has the focus outside of the window")
    for number in sorted(set(range(len(controls))) - set(reached)):
        suite.fault(f"{path}: Tab does not reach {controls[number]}")
    first = reached.index(min(reached)) if reached else 0  # a page may begin with the focus on a field
    if reached[first:] + reached[:first] != sorted(reached):
        suite.fault(f"{path}: the order of the focus is {reached}")
    suite.say(f"{path}: Tab reaches {len(reached)} controls in order")


def tab_to(page: Any, control: Any) -> None:
    """Press Tab until a control has the focus.

    :raises AssertionError: Tab does not reach it.
    """
    expect(control).to_be_visible()
    for _ in range(400):
        if control.evaluate("each => each === document.activeElement"):
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"Tab does not reach {control}")


def search_and_sort(tab: Any) -> None:
    """Search and sort the topics. The focus stays on the control, although the table is replaced."""
    page = tab.open("/topics")
    tab_to(page, page.get_by_label("Filter"))
    page.keyboard.type("views")
    expect(page.get_by_role("link", name="clicks")).to_have_count(0)
    page.keyboard.press("Control+A")
    page.keyboard.press("Delete")
    expect(page.get_by_role("link", name="clicks")).to_have_count(1)
    tab_to(page, page.get_by_role("link", name="Partitions"))
    for order, first in (("descending", "views.of.pages"), ("ascending", "clicks")):
        page.keyboard.press("Enter")
        expect(page.get_by_role("columnheader", name="Partitions")).to_have_attribute("aria-sort", order)
        expect(page.locator("tbody th").first).to_have_text(first)
        expect(page.get_by_role("link", name="Partitions")).to_be_focused()


def produce(tab: Any) -> None:
    """Write and send a record."""
    page = tab.open("/topic?name=views.of.pages")
    tab_to(page, page.get_by_role("link", name="Produce a record"))
    page.keyboard.press("Enter")
    tab_to(page, page.get_by_label("Key"))
    page.keyboard.type("typed")
    page.keyboard.press("Tab")
    page.keyboard.type("by keys alone")
    tab_to(page, page.get_by_role("button", name="Send"))
    page.keyboard.press("Enter")
    expect(page.get_by_text("by keys alone").first).to_be_visible()


def reset(tab: Any, end: int) -> None:
    """Move a group to the end of its topics.

    :param end: the end offset that the page shows afterwards.
    """
    page = tab.open("/group?name=readers")
    tab_to(page, page.get_by_role("link", name="Reset offsets"))
    page.keyboard.press("Enter")
    tab_to(page, page.get_by_label("New position"))
    page.keyboard.type("the end")
    tab_to(page, page.get_by_role("button", name="Preview"))
    page.keyboard.press("Enter")
    expect(page.get_by_role("region", name="Preview")).to_contain_text(str(end))
    tab_to(page, page.get_by_role("button", name="Set these offsets"))
    page.keyboard.press("Enter")
    expect(page.get_by_role("region", name="Offsets")).to_contain_text(str(end))


def focus_stays(suite: Suite, tab: Any) -> None:
    """The overview replaces its figures every few seconds, which must not take the focus away."""
    page = tab.open("/")
    link = page.locator("#content").get_by_role("link").first
    tab_to(page, link)
    with page.expect_response("**/overview/figures"):
        pass
    page.wait_for_function("() => !document.querySelector('.htmx-settling, .htmx-swapping')")
    if not link.evaluate("each => each === document.activeElement"):
        suite.fault("the overview takes the focus away when it shows new figures")
