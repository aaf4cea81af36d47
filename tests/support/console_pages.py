"""Pages of the console over a fake admin client: no broker, no socket."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

from starlette.applications import Starlette

from barnabas.client.admin.brokers import ClusterDescription
from barnabas.client.admin.groups import GroupListing
from barnabas.client.admin.share_groups import DeliveredRange, ShareGroupDescription, ShareGroupOffset
from barnabas.client.admin.topics import PartitionDescription, TopicDescription
from barnabas.client.admin.transactions import ProducerDescription, TransactionDescription, TransactionListing
from barnabas.clock import SYSTEM_CLOCK
from barnabas.console.application import new_application
from barnabas.console.audits import Audits
from barnabas.console.cluster_view import ClusterView
from barnabas.console.config import ConsoleConfig
from barnabas.console.context import Console
from barnabas.console.sessions import Sessions
from barnabas.model import Node, OffsetAndMetadata, TopicPartition

DEADLINE_S = 60
SHARE_GROUPS = {"ShareGroupDescribe": range(1, 2), "DescribeShareGroupOffsets": range(2)}
TRANSACTIONS = {"ListTransactions": range(3), "DescribeTransactions": range(1), "DescribeProducers": range(1)}


def topic(name: str, *partitions: PartitionDescription, topic_id: str = "id") -> TopicDescription:
    return TopicDescription(name, topic_id, partitions)


class FakeAdmin:
    """An admin client of a cluster whose answers a test sets.

    :ivar failures: the error of a method, by its name.
    :ivar hanging: the ids of brokers that never list their groups. Broker 1 is always in the cluster.
    """

    def __init__(self) -> None:
        self.versions: dict[str, range] = {}
        self.topics: list[TopicDescription] = []
        self.groups: list[GroupListing] = []
        self.ends: dict[TopicPartition, int] = {}
        self.stable: dict[TopicPartition, int] = {}
        self.listed: list[TransactionListing] = []
        self.described: dict[str, TransactionDescription] = {}
        self.producers: dict[TopicPartition, list[ProducerDescription]] = {}
        self.share_group: ShareGroupDescription | None = None
        self.share_offsets: dict[TopicPartition, ShareGroupOffset] = {}
        self.deliveries: dict[TopicPartition, list[DeliveredRange]] = {}
        self.eligible: dict[TopicPartition, tuple[int, ...]] = {}
        self.failures: dict[str, Exception] = {}
        self.hanging: tuple[int, ...] = ()
        self.calls: list[tuple[str, Any]] = []

    def _call(self, name: str, arguments: Any = None) -> None:
        self.calls.append((name, arguments))
        if name in self.failures:
            raise self.failures[name]

    async def close(self) -> None:
        self._call("close")

    async def api_versions(self) -> dict[str, range]:
        self._call("api_versions")
        return self.versions

    async def describe_cluster(self) -> ClusterDescription:
        node = Node(1, "b", 1)
        return ClusterDescription(
            "cluster", node, (node, *(Node(each, "b", each) for each in self.hanging if each != 1))
        )

    async def describe_topics(self, names: Iterable[str] | None = None) -> list[TopicDescription]:
        return [each for each in self.topics if names is None or each.name in names]

    async def describe_config(self, *_: object, **__: object) -> dict[str, Any]:
        return {}

    async def log_dirs(self) -> list[Any]:
        return []

    async def list_groups(self, *, broker: int) -> list[GroupListing]:
        if broker in self.hanging:
            await asyncio.Event().wait()
        return self.groups

    async def end_offsets(
        self, tps: Iterable[TopicPartition], *, isolation_level: str = "read_uncommitted"
    ) -> dict[TopicPartition, int]:
        wanted = list(tps)
        self._call("end_offsets", wanted)
        found = self.stable if isolation_level == "read_committed" else self.ends
        return {each: found.get(each, 0) for each in wanted}

    async def beginning_offsets(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(tps, 0)

    async def offsets_of_groups(self, groups: Iterable[str]) -> dict[str, dict[TopicPartition, OffsetAndMetadata]]:
        self._call("offsets_of_groups", list(groups))
        return {}

    async def eligible_leader_replicas(self, topics: Iterable[str]) -> dict[TopicPartition, tuple[int, ...]]:
        self._call("eligible_leader_replicas", list(topics))
        return self.eligible

    async def list_transactions(self) -> list[TransactionListing]:
        self._call("list_transactions")
        return self.listed

    async def describe_transactions(self, ids: Iterable[str]) -> dict[str, TransactionDescription]:
        wanted = list(ids)
        self._call("describe_transactions", wanted)
        return {each: self.described[each] for each in wanted if each in self.described}

    async def describe_producers(
        self, tps: Iterable[TopicPartition]
    ) -> dict[TopicPartition, list[ProducerDescription]]:
        self._call("describe_producers")
        return {each: self.producers.get(each, []) for each in tps}

    async def describe_share_group(self, group: str) -> ShareGroupDescription:
        self._call("describe_share_group")
        return self.share_group or ShareGroupDescription(group, "Dead", -1, -1, "", ())

    async def share_group_offsets(self, group: str) -> dict[TopicPartition, ShareGroupOffset]:
        self._call("share_group_offsets", group)
        return self.share_offsets

    async def share_group_deliveries(
        self, _group: str, offsets: Mapping[TopicPartition, ShareGroupOffset]
    ) -> dict[TopicPartition, list[DeliveredRange]]:
        self._call("share_group_deliveries")
        return {where: ranges for where, ranges in self.deliveries.items() if where in offsets}


Get = Callable[[str], Awaitable[tuple[int, str]]]


def on_pages(
    admin: FakeAdmin, check: Callable[[Get], Awaitable[None]], on_view: Callable[[ClusterView], None] = id
) -> None:
    """Run a check with a function that returns the status and the text of a page.

    :param on_view: gets the view of the pages.
    """

    async def main() -> None:
        def new_view(settings: Mapping[str, str]) -> ClusterView:
            view = ClusterView(settings, SYSTEM_CLOCK, admin)  # type: ignore[arg-type]
            on_view(view)
            return view

        def new_audits(settings: Mapping[str, str]) -> Audits:
            return Audits(settings, None, asyncio.Semaphore(1), SYSTEM_CLOCK)

        sessions = Sessions(new_view, new_audits, bytes, SYSTEM_CLOCK.monotonic)
        console = Console(ConsoleConfig("b:1"), sessions)
        application = new_application(console)
        try:
            async with asyncio.timeout(DEADLINE_S):
                await check(lambda path: _ask(application, path))
        finally:
            await console.close()

    asyncio.run(main())


async def _ask(application: Starlette, path: str) -> tuple[int, str]:
    parts = urlsplit(path)
    scope = {
        "type": "http",
        "method": "GET",
        "path": parts.path,
        "query_string": parts.query.encode(),
        "headers": [(b"host", b"b")],
        "scheme": "http",
        "server": ("b", 80),
        "client": ("127.0.0.1", 1),
        "root_path": "",
        "http_version": "1.1",
    }
    status, body = 0, b""

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        nonlocal status, body
        status = message.get("status", status)
        body += message.get("body", b"")

    await application(scope, receive, send)  # type: ignore[arg-type]
    return status, body.decode()
