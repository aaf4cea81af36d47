"""Producer ids are never handed out twice, whatever becomes of the tree that counts them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker.pipeline.call import ENTRIES_PER_STEP
from barnabas.broker.pipeline.scheduler import SLICE_S, CooperativeScheduler
from barnabas.broker.producer_ids import ProducerIds
from barnabas.clock import ManualClock
from barnabas.coordination import paths, topic_metadata_store
from barnabas.coordination.embedded_metadata_store import EmbeddedMetadataStore
from barnabas.model import PLAUSIBLE_PRODUCER_IDS, TopicPartition
from barnabas.records import BatchBuilder
from barnabas.storage import Log, LogConfig, OsFileSystem
from tests.support.in_process_broker import Caller, run_with_broker


class Node:
    """A broker with one log, as far as producer ids are concerned."""

    def __init__(self, tree: EmbeddedMetadataStore, folder: Path, broker_id: int) -> None:
        self._folder = folder / f"{broker_id}"
        self._tree = tree
        self._id = broker_id
        self._log: Log | None = None

    def start(self) -> None:
        place = TopicPartition("clicks", 0)
        self._log = Log.open(self._folder / "clicks-0", place, LogConfig(), ManualClock(), OsFileSystem())
        replicas = [SimpleNamespace(log=self._log)]
        topics: Any = SimpleNamespace(all=lambda: replicas)
        scheduler = CooperativeScheduler(lambda: 0.0)
        self.ids = ProducerIds(self._tree, self._id, at_once, topics, scheduler)  # type: ignore[arg-type]
        asyncio.run(self.ids.raise_counter())

    def stop(self) -> None:
        assert self._log is not None
        self._log.close()

    def look(self) -> None:
        asyncio.run(self.ids.raise_counter())

    def allocate(self) -> int:
        return asyncio.run(self.ids.next())

    def write(self, producer_id: int) -> None:
        assert self._log is not None
        builder = BatchBuilder()
        builder.append(1_000, None, b"value")
        self._log.append(bytearray(builder.build(producer_id=producer_id, producer_epoch=0, base_sequence=0)), 0)


async def at_once(function: Callable[..., Any], *arguments: Any) -> Any:
    await asyncio.sleep(0)
    return function(*arguments)


@pytest.fixture
def tree(tmp_path: Path) -> EmbeddedMetadataStore:
    made = EmbeddedMetadataStore(tmp_path / "tree.sqlite")
    topic_metadata_store.prepare(made, "castle")
    return made


@pytest.fixture
def node(tree: EmbeddedMetadataStore, tmp_path: Path) -> Callable[[int], Node]:
    def start(broker_id: int) -> Node:
        made = Node(tree, tmp_path, broker_id)
        made.start()
        return made

    return start


def go_back(tree: EmbeddedMetadataStore, data: bytes | None) -> None:
    """Let the counter be what it was, missing, or nonsense."""
    if data is None:
        tree.delete(paths.PRODUCER_ID_BLOCK)
    else:
        tree.set(paths.PRODUCER_ID_BLOCK, data)


@pytest.mark.parametrize("steps_back", [1, 40, None, "nonsense"])
@pytest.mark.parametrize("restarts", [True, False])
def test_counter_that_goes_back_allocates_no_id_again(
    tree: EmbeddedMetadataStore, node: Callable[[int], Node], steps_back: int | str | None, *, restarts: bool
) -> None:
    one = node(1)
    history: list[bytes] = []
    used: set[int] = set()
    for _ in range(41):
        used.add(one.allocate())
        one.write(max(used))
        one.ids._block = range(0)
        history.append(tree.get(paths.PRODUCER_ID_BLOCK).data)
    assert len(used) == 41
    before = b"nonsense" if steps_back == "nonsense" else None
    go_back(tree, history[-1 - steps_back] if isinstance(steps_back, int) else before)
    if restarts:
        one.stop()
        one = node(1)
    assert one.allocate() > max(used)
    one.stop()


def test_ids_that_only_another_broker_knows_count(tree: EmbeddedMetadataStore, node: Callable[[int], Node]) -> None:
    one, two = node(1), node(2)
    older = None
    for producer_id in [two.allocate() for _ in range(1_500)]:
        two.write(producer_id)
    one.stop(), two.stop()
    go_back(tree, older)
    # The first broker comes back alone, allocates, and hears then of what the second one knows.
    one = node(1)
    one.allocate()
    two = node(2)
    one.look()
    assert one.allocate() > producer_id
    assert two.allocate() > producer_id
    one.stop(), two.stop()


def test_ids_that_come_by_replication_count(tree: EmbeddedMetadataStore, node: Callable[[int], Node]) -> None:
    one, two = node(1), node(2)
    one.allocate()
    two.write(5_000)
    two.look()
    one.look()
    assert one.allocate() > 5_000
    one.stop(), two.stop()


def test_ids_that_clients_invent_exhaust_nothing(tree: EmbeddedMetadataStore, node: Callable[[int], Node]) -> None:
    one = node(1)
    for invented in (2**63 - 1, 2**62, PLAUSIBLE_PRODUCER_IDS, 10**12):
        one.write(invented)
    one.ids._block = range(0)
    allocated = [one.allocate() for _ in range(3)]
    assert all(10**12 < each < 10**12 + 2_000_000 for each in allocated)
    one.write(PLAUSIBLE_PRODUCER_IDS - 1)
    one.ids._block = range(0)
    assert PLAUSIBLE_PRODUCER_IDS < one.allocate() < PLAUSIBLE_PRODUCER_IDS + 2_000_000
    # Above that, no client moves the counter.
    one.write(one.allocate() + 10**15)
    one.ids._block = range(0)
    assert one.allocate() < PLAUSIBLE_PRODUCER_IDS + 2_000_000
    one.stop()


def test_id_of_the_present_block_that_a_client_used_is_passed_over(
    tree: EmbeddedMetadataStore, node: Callable[[int], Node]
) -> None:
    one = node(1)
    first = one.allocate()
    one.write(first + 1)
    one.write(first + 2)
    assert one.allocate() == first + 3
    one.stop()


def test_other_work_runs_while_the_logs_of_many_partitions_are_read(tree: EmbeddedMetadataStore) -> None:
    now_s = 0.0
    reads = reads_at_once_max = reads_before = 0

    class SlowLog:
        """Each read takes a hundredth of a slice."""

        @property
        def highest_producer_id(self) -> int:
            self._pass_time()
            return 7

        def knows_producer(self, producer_id: int) -> bool:
            self._pass_time()
            return False

        def _pass_time(self) -> None:
            nonlocal now_s, reads
            now_s += SLICE_S / 100
            reads += 1

    replicas = [SimpleNamespace(log=SlowLog()) for _ in range(10_000)]
    topics: Any = SimpleNamespace(all=lambda: replicas)

    async def note_other_work(of: asyncio.Future[int]) -> None:
        nonlocal reads_at_once_max, reads_before
        while not of.done():
            await asyncio.sleep(0)
            reads_at_once_max = max(reads_at_once_max, reads - reads_before)
            reads_before = reads

    async def scenario() -> None:
        ids = ProducerIds(tree, 1, at_once, topics, CooperativeScheduler(lambda: now_s))  # type: ignore[arg-type]
        taking = asyncio.ensure_future(ids.next())
        await note_other_work(taking)
        assert await taking > 7

    asyncio.run(scenario())
    assert reads == 2 * len(replicas)
    assert reads_at_once_max <= 100 + 2 * ENTRIES_PER_STEP


def test_highest_id_outlives_the_records_and_a_restart(tmp_path: Path) -> None:
    async def write(caller: Caller) -> None:
        assert await caller.broker.producer_ids.next() < 7_000
        caller.append(b"a", producer_id=7_000, producer_epoch=0, base_sequence=0)
        await caller.broker.producer_ids.raise_counter()
        assert await caller.broker.producer_ids.next() > 7_000

    async def lose(caller: Caller) -> None:
        tree = caller.broker._tree
        tree.delete(paths.PRODUCER_ID_BLOCK)

    async def check(caller: Caller) -> None:
        assert await caller.broker.producer_ids.next() > 7_000

    for scenario in (write, lose, check):
        run_with_broker(tmp_path, scenario)
