"""The topics as a tree by the parts of their names."""

from __future__ import annotations

from barnabas.console.cluster_view import TopicRow
from barnabas.console.pages.topics import branches

ROWS = [
    TopicRow("clicks", 2, 3, 0, 0, 10, 100, 1.0),
    TopicRow("shop.eu.orders", 3, 3, 1, 0, 20, None, None),
    TopicRow("shop.eu.returns", 4, 3, 0, 1, None, None, 2.0),
    TopicRow("shop.us", 5, 3, 0, 0, 40, 400, 3.0),
    TopicRow("shop", 1, 3, 0, 0, 1, 1, 0.0),
]


def names(under: str) -> dict[str, int]:
    return {each.name: each.topics for each in branches(ROWS, under)}


def test_each_level_contains_topics_and_groups_of_topics() -> None:
    assert names("") == {"clicks": 1, "shop.": 3, "shop": 1}
    assert names("shop.") == {"eu.": 2, "us": 1}
    assert names("shop.eu.") == {"orders": 1, "returns": 1}
    assert names("absent.") == {}


def test_figures_of_a_group_are_sums_of_what_is_known() -> None:
    (shop,) = [each for each in branches(ROWS, "") if each.name == "shop."]
    assert (shop.prefix, shop.partitions, shop.under_replicated, shop.offline) == ("shop.", 12, 1, 1)
    assert (shop.records, shop.size, shop.rate) == (60, 400, 5.0)
    (europe,) = [each for each in branches(ROWS, "shop.") if each.name == "eu."]
    assert europe.size is None
