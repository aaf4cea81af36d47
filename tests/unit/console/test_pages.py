"""The pages of transactions, share groups and elections, over a fake admin client."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

import pytest

from barnabas.client.admin.groups import GroupListing
from barnabas.client.admin.share_groups import (
    DeliveredRange,
    DeliveryState,
    ShareGroupDescription,
    ShareGroupMember,
    ShareGroupOffset,
)
from barnabas.client.admin.topics import PartitionDescription
from barnabas.client.admin.transactions import ProducerDescription, TransactionDescription, TransactionListing
from barnabas.console.pages.share_group import SHOWN_RANGES_MAX
from barnabas.errors import ApiError, ErrorCode, UnsupportedVersionError
from barnabas.model import TopicPartition
from tests.support.console_pages import SHARE_GROUPS, TRANSACTIONS, FakeAdmin, Get, on_pages, topic

HOSTILE = "<script>alert(1)</script>\"'&\u202e"
ESCAPED = "&lt;script&gt;alert(1)&lt;/script&gt;"
HERE = TopicPartition("clicks", 0)


def with_transactions(*, age_s: float = 200, timeout_ms: int = 60_000) -> FakeAdmin:
    admin = FakeAdmin()
    admin.versions = TRANSACTIONS
    admin.topics = [topic("clicks", PartitionDescription(0, 1, (1,), (1,)))]
    admin.ends, admin.stable = {HERE: 9}, {HERE: 4}
    admin.listed = [TransactionListing("idle", "CompleteCommit", 6, 1), TransactionListing(HOSTILE, "Ongoing", 7, 1)]
    start_ms = round((time.time() - age_s) * 1000)
    admin.described = {
        "idle": TransactionDescription("idle", "CompleteCommit", 6, 0, timeout_ms, None, ()),
        HOSTILE: TransactionDescription(HOSTILE, "Ongoing", 7, 2, timeout_ms, start_ms, (HERE,)),
    }
    admin.producers = {
        HERE: [ProducerDescription(5, 0, 1, 1_000, None, None), ProducerDescription(7, 2, 3, 2_000, None, 4)]
    }
    return admin


def is_text(page: str) -> bool:
    return "<script>alert" not in page and "\u202e" not in page and ESCAPED in page


def test_control_characters_of_any_text_are_visible() -> None:
    async def check(get: Get) -> None:
        _, page = await get("/groups?" + urlencode({"filter": HOSTILE}))
        assert f"No group contains “{ESCAPED}&#34;&#39;&amp;\\u202e”" in page
        assert f'value="{ESCAPED}&#34;&#39;&amp;\u202e"' in page  # a field keeps its value
        _, page = await get("/record?topic=clicks&offset=" + urlencode({"": "\u202e"})[1:])
        assert "\u202e" not in page

    on_pages(FakeAdmin(), check)


TRANSACTION_PATHS = ("/transactions", "/transaction?id=a", "/producers?topic=clicks&partition=0")


def test_pages_of_transactions_are_absent_if_the_brokers_do_not_advertise_them() -> None:
    admin = with_transactions()
    admin.versions = {"ListTransactions": range(1), "Fetch": range(1)}

    async def check(get: Get) -> None:
        for path in TRANSACTION_PATHS:
            assert (await get(path))[0] == 404
        assert "/transactions" not in (await get("/"))[1]
        assert "/producers" not in (await get("/topic?name=clicks"))[1]
        assert not {"list_transactions", "describe_producers"} & {name for name, _ in admin.calls}

    on_pages(admin, check)


def test_longest_open_transaction_comes_first_with_its_time() -> None:
    async def check(get: Get) -> None:
        assert 'href="/transactions"' in (await get("/"))[1]
        status, page = await get("/transactions")
        assert status == 200
        assert is_text(page)
        assert page.index(ESCAPED) < page.index(">idle<")
        assert "1 open, the longest for 3 min 2" in page
        assert "1 longer than the timeout" in page
        assert ">idle<" not in (await get("/transactions?filter=script"))[1]
        by_name = (await get("/transactions?sort=name&order=asc"))[1]
        assert by_name.index(ESCAPED) < by_name.index(">idle<")

    on_pages(with_transactions(), check)


def test_transaction_in_time_is_not_late() -> None:
    async def check(get: Get) -> None:
        assert "longer than the timeout" not in (await get("/transactions"))[1]

    on_pages(with_transactions(timeout_ms=3_600_000), check)


def test_page_of_a_transaction_shows_what_it_holds_back() -> None:
    async def check(get: Get) -> None:
        status, page = await get("/transaction?" + urlencode({"id": HOSTILE}))
        assert status == 200
        assert is_text(page)
        assert (
            '<td class="n">0</td><td class="n">4</td><td class="n">4</td><td class="n">9</td><td class="n">5</td>'
            in page
        )
        assert "/producers?topic=clicks&amp;partition=0" in page
        assert "There is no open transaction." in (await get("/transaction?id=idle"))[1]
        assert (await get("/transaction?id=absent"))[0] == 404

    on_pages(with_transactions(), check)


def test_page_of_a_transaction_says_which_permission_is_missing() -> None:
    admin = with_transactions()
    admin.failures["describe_producers"] = ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "READ is missing <b>")

    async def check(get: Get) -> None:
        status, page = await get("/transaction?" + urlencode({"id": HOSTILE}))
        assert (status, "READ is missing &lt;b&gt;" in page, ">clicks<" in page) == (200, True, True)
        assert '<td class="n">unknown</td><td class="n">4</td><td class="n">9</td><td class="n">5</td>' in page

    on_pages(admin, check)


def test_producers_with_open_transactions_come_first_and_have_names() -> None:
    async def check(get: Get) -> None:
        assert "/producers?topic=clicks&amp;partition=0" in (await get("/topic?name=clicks"))[1]
        status, page = await get("/producers?topic=clicks&partition=0")
        assert status == 200
        assert is_text(page)
        assert page.index(">7<") < page.index(">5<")
        assert (await get("/producers?topic=clicks&partition=x"))[0] == 400

    on_pages(with_transactions(), check)


def test_topic_without_open_transactions_has_no_link_to_producers() -> None:
    admin = with_transactions()
    admin.stable = admin.ends

    async def check(get: Get) -> None:
        assert "/producers" not in (await get("/topic?name=clicks"))[1]

    on_pages(admin, check)


def with_share_group() -> FakeAdmin:
    admin = FakeAdmin()
    admin.versions = SHARE_GROUPS
    admin.groups = [
        GroupListing(HOSTILE, "Stable", "share", "share"),
        GroupListing("plain", "Empty", "consumer", "classic"),
    ]
    member = ShareGroupMember("m-1", HOSTILE, "10.0.0.1", None, 3, ("clicks",), (HERE,))
    admin.share_group = ShareGroupDescription(HOSTILE, "Stable", 3, 3, "simple", (member,))
    admin.share_offsets = {
        HERE: ShareGroupOffset(bytes(16), 2, 0, 7),
        TopicPartition("clicks", 1): ShareGroupOffset(bytes(16), None, 0, None, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    }
    admin.ends = {HERE: 12}
    admin.deliveries = {
        HERE: [
            DeliveredRange(2, 3, DeliveryState.ACKNOWLEDGED, 1),
            DeliveredRange(4, 6, DeliveryState.AVAILABLE, 4),
            DeliveredRange(7, 7, DeliveryState.UNKNOWN, 2),
        ]
    }
    return admin


PAGE = "/share-group?" + urlencode({"name": HOSTILE})


def test_page_of_share_groups_is_absent_if_the_brokers_do_not_advertise_them() -> None:
    admin = with_share_group()
    admin.versions = {"ListGroups": range(6)}

    async def check(get: Get) -> None:
        assert (await get(PAGE))[0] == 404
        assert "/share-group" not in (await get("/groups"))[1]
        assert "share_group_offsets" not in {name for name, _ in admin.calls}

    on_pages(admin, check)


def test_share_groups_are_listed_with_their_type() -> None:
    async def check(get: Get) -> None:
        page = (await get("/groups"))[1]
        assert is_text(page)
        assert "/share-group?name=%3Cscript" in page
        assert "<td>share</td>" in page
        assert 'href="/group?name=plain"' in page

    on_pages(with_share_group(), check)


def test_share_group_shows_deliveries_and_possible_holders() -> None:
    async def check(get: Get) -> None:
        status, page = await get(PAGE)
        assert status == 200
        assert is_text(page)
        assert "acknowledged" in page
        assert '<td class="n">3</td><td>available or acquired</td><td class="n">4</td>' in page
        assert "TOPIC_AUTHORIZATION_FAILED" in page
        assert "does not reveal which records members have acquired" in page

    on_pages(with_share_group(), check)


def test_share_group_without_cluster_action_says_what_is_missing() -> None:
    admin = with_share_group()
    admin.failures["share_group_deliveries"] = ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "CLUSTER_ACTION")

    async def check(get: Get) -> None:
        status, page = await get(PAGE)
        assert status == 200
        assert "The stored states of records are not shown: CLUSTER_AUTHORIZATION_FAILED: CLUSTER_ACTION" in page
        assert is_text(page)

    on_pages(admin, check)


def test_many_ranges_are_cut() -> None:
    admin = with_share_group()
    admin.deliveries = {
        HERE: [DeliveredRange(n, n, DeliveryState.ARCHIVED, n) for n in range(2, SHOWN_RANGES_MAX + 12)]
    }

    async def check(get: Get) -> None:
        page = (await get(PAGE))[1]
        assert page.count("archived") == SHOWN_RANGES_MAX
        assert "has 10 more ranges" in page

    on_pages(admin, check)


@pytest.mark.parametrize(
    ("change", "status"),
    [
        (lambda admin: setattr(admin, "share_group", None), 404),
        (lambda admin: admin.failures.update(describe_share_group=UnsupportedVersionError("no such API")), 502),
        (lambda admin: admin.failures.update(describe_share_group=ApiError(ErrorCode.GROUP_AUTHORIZATION_FAILED)), 403),
    ],
)
def test_share_group_that_cannot_be_described_is_an_error_page(change: Callable[[FakeAdmin], Any], status: int) -> None:
    admin = with_share_group()
    change(admin)

    async def check(get: Get) -> None:
        found, page = await get(PAGE)
        assert found == status
        assert "<script>alert" not in page

    on_pages(admin, check)


def test_overview_counts_elections_beside_offline_partitions() -> None:
    admin = FakeAdmin()
    before = PartitionDescription(0, 1, (1, 2), (1,), leader_epoch=0)
    after = PartitionDescription(0, 2, (1, 2), (2,), leader_epoch=1)
    admin.topics = [topic(HOSTILE, before)]

    async def check(get: Get) -> None:
        assert "Newest leader elections" not in (await get("/"))[1]
        view = views[0]
        view.elections.note(1, {HOSTILE: topic(HOSTILE, before)}, {})
        view.elections.note(2, {HOSTILE: topic(HOSTILE, after)}, {})
        page = (await get("/"))[1]
        assert is_text(page)
        assert '<span class="bad">unclean</span>' in page
        status, text = await get("/overview/elections.json")
        assert status == 200
        assert '"values":' in text

    views: list[Any] = []
    on_pages(admin, check, views.append)
