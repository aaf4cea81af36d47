"""Connections and sessions at the listener for ZooKeeper's clients, with a tree and a clock but no sockets."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.zookeeper_listener import SWEEP_S, ZooKeeperListener
from barnabas.clock import ManualClock
from barnabas.coordination import paths
from barnabas.coordination.embedded_metadata_store import EmbeddedMetadataStore
from barnabas.coordination.metadata_store import MetadataStoreUnavailableError
from barnabas.coordination.zookeeper.server.answers import Error
from barnabas.coordination.zookeeper.server.jute import boolean, buffer, int_, long, string, vector
from barnabas.coordination.zookeeper.server.requests import Kind
from barnabas.coordination.zookeeper.server.serving import ANSWERED_BYTES_MAX, SLICE_S
from barnabas.coordination.zookeeper.server.sessions import SESSIONS_MAX, SESSIONS_PER_CONNECTION
from barnabas.errors import CoordinationError, MalformedMessageError
from barnabas.net.server_connection import HandlerFactory, Limits, RequestHandler
from tests.support.fake_link import FakeLink

OPEN = vector([int_(31) + string("world") + string("anyone")])


class NoSockets:
    """A listener to which nobody comes by a network."""

    new_handler: HandlerFactory

    def __init__(self, limits: Limits) -> None:
        self.limits = limits

    def accept(self, new_handler: HandlerFactory) -> None:
        self.new_handler = new_handler


class Connection:
    """A client's connection: what it sends is handled at once, what it is sent is kept."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.link = FakeLink()
        self.link.on_hang_up = lambda _reason: self.end()
        self.requests: RequestHandler = world.new_handler(self.link)
        self.sizes: list[int] = []
        """How many bytes it was sent for what was handled at once."""
        self.session = 0, bytes(16)
        self.timeout_ms = 0

    @property
    def sent(self) -> list[bytes]:
        """What was pushed to it."""
        return self.link.pushed  # type: ignore[return-value]

    def end(self) -> None:
        """The connection ends."""
        if not self.link.is_gone:
            self.link.is_gone = True
            self.requests.note_gone()

    async def connect(self, session: tuple[int, bytes] = (0, bytes(16)), last_change: int = 0) -> None:
        """Ask for a session of 4 s."""
        asked = int_(0) + long(last_change) + int_(4_000) + long(session[0]) + buffer(session[1]) + boolean(False)
        reply = self.requests.carry_out([bytearray(asked)])
        (answer,) = [*reply.answer, *(await reply.later if reply.later else [])]
        _, self.timeout_ms, number, size = struct.unpack_from(">iiqi", answer, 4)
        self.session = number, answer[24 : 24 + size]
        await asyncio.sleep(0)  # a refused connection ends in the next round

    async def ask(self, *requests: bytes) -> list[int]:
        """Send requests that come together; return the errors in their answers."""
        frames = [bytearray(int_(number) + each) for number, each in enumerate(requests)]
        before = len(self.sent)
        while frames:
            known = len(self.sent)
            reply = self.requests.carry_out(frames)
            if reply.later is not None:
                await reply.later
            frames[: reply.frame_count] = map(bytearray, self.link.given_back)
            self.link.given_back = []
            self.sizes.append(sum(map(len, self.sent[known:])))
        return [struct.unpack_from(">i", frame, 16)[0] for frame in self.sent[before:]]


class World:
    """The listener, its tree, and the time."""

    def __init__(self, tree: EmbeddedMetadataStore, clock: ManualClock, max_client_cnxns: int = 0) -> None:
        self.tree = tree
        self.clock = clock
        self.fails = False
        self.listener = ZooKeeperListener("0", NoSockets, clock, max_client_cnxns)  # type: ignore[arg-type]
        self.listener.serve(tree.store, self.in_metadata_thread)

    @property
    def new_handler(self) -> HandlerFactory:
        return self.listener._listener.new_handler

    def in_metadata_thread(self, function: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        future = asyncio.get_running_loop().create_future()
        if self.fails:
            future.set_exception(MetadataStoreUnavailableError("the disk is full"))
            return future
        try:
            future.set_result(function(*arguments))
        except Exception as error:  # noqa: BLE001 - as an executor does
            future.set_exception(error)
        return future

    async def connected(self) -> Connection:
        connection = Connection(self)
        await connection.connect()
        return connection

    async def pass_time(self, seconds: float) -> None:
        """Let time pass as it does where sweeps are on time."""
        for _ in range(int(seconds / SWEEP_S)):
            self.clock.advance(SWEEP_S)
            await self.listener.sweep()


Scenario = Callable[[World], Coroutine[Any, Any, None]]


@pytest.fixture
def play(tmp_path: Path) -> Iterator[Callable[[Scenario], None]]:
    """Play a scenario in an event loop."""
    clock = ManualClock()
    tree = EmbeddedMetadataStore(tmp_path / "tree.db", clock, keeps_sessions=True)

    def run(scenario: Scenario) -> None:
        async def in_loop() -> None:
            await scenario(World(tree, clock))

        asyncio.run(in_loop())

    yield run
    tree.close()


def create(path: str, flags: int = 0) -> bytes:
    return int_(Kind.CREATE) + string(path) + buffer(b"") + OPEN + int_(flags)


SIZE = 300_000
PING = int_(Kind.PING)
CLOSE = int_(Kind.CLOSE_SESSION)


def test_session_lives_while_its_client_asks_and_its_nodes_go_after(play: Callable[[Scenario], None]) -> None:
    async def scenario(world: World) -> None:
        client = await world.connected()
        assert await client.ask(create("/e", 1)) == [0]
        for _ in range(4):
            await world.pass_time(3)
            assert await client.ask(PING) == [0]
        await world.pass_time(3)
        assert world.tree.exists("/e")
        await world.pass_time(2)
        assert world.tree.exists("/e") is None
        assert client.link.is_gone
        again = Connection(world)
        await again.connect(client.session)
        assert again.timeout_ms == 0
        assert again.link.is_gone

    play(scenario)


def test_what_the_connection_before_has_sent_and_was_not_begun_is_dropped(play: Callable[[Scenario], None]) -> None:
    async def scenario(world: World) -> None:
        before, after = await world.connected(), Connection(world)
        await after.connect(before.session)
        assert after.session == before.session
        assert before.link.is_gone
        assert await before.ask(create("/late")) == []
        assert world.tree.exists("/late") is None
        assert await after.ask(create("/now")) == [0]
        before.end()
        await world.pass_time(3)
        assert await after.ask(PING) == [0], "the end of the one is not the end of the other"

    play(scenario)


def test_what_a_client_sent_before_it_hung_up_is_carried_out(play: Callable[[Scenario], None]) -> None:
    async def scenario(world: World) -> None:
        client = await world.connected()
        client.end()
        assert await client.ask(create("/a"), CLOSE) == []
        assert world.tree.exists("/a")
        assert world.tree.store.kept_sessions() == []

    play(scenario)


def test_closed_session_makes_room_for_another(play: Callable[[Scenario], None]) -> None:
    async def scenario(world: World) -> None:
        clients = [await world.connected() for _ in range(SESSIONS_MAX)]
        with pytest.raises(CoordinationError, match=f"limit of {SESSIONS_MAX} sessions"):
            await world.connected()
        assert await clients[0].ask(CLOSE, PING) == [0], "nothing is answered behind the end"
        assert clients[0].link.is_gone
        await world.connected()

    play(scenario)


def test_session_that_cannot_be_kept_is_not_begun(play: Callable[[Scenario], None]) -> None:
    async def scenario(world: World) -> None:
        world.fails = True
        with pytest.raises(MetadataStoreUnavailableError):
            await world.connected()
        world.fails = False
        assert len(world.listener._sessions) == 0
        await world.connected()

    play(scenario)


def test_end_of_a_session_is_tried_again_while_the_disk_is_full(
    play: Callable[[Scenario], None], caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(world: World) -> None:
        client = await world.connected()
        await client.ask(create("/e", 1))
        world.fails = True
        await world.pass_time(10)
        assert world.tree.exists("/e")
        world.fails = False
        await world.pass_time(SWEEP_S)
        assert world.tree.exists("/e") is None

    play(scenario)
    assert sum("cannot remove ZooKeeper session" in record.message for record in caplog.records) == 1, "it is said once"


def test_who_has_seen_a_later_change_than_there_is_begins_anew(play: Callable[[Scenario], None]) -> None:
    async def scenario(world: World) -> None:
        client, again = await world.connected(), Connection(world)
        await client.ask(create("/e", 1))
        await again.connect(client.session, last_change=world.tree.store.last_change)
        assert again.timeout_ms == 4_000
        later = Connection(world)
        await later.connect(client.session, last_change=world.tree.store.last_change + 1)
        assert later.timeout_ms == 0
        assert again.link.is_gone
        assert later.link.is_gone
        assert world.tree.exists("/e") is None, "a session that is over has no nodes"
        assert world.tree.store.kept_sessions() == []

    play(scenario)


def test_damaged_request_ends_its_connection_and_not_the_session(play: Callable[[Scenario], None]) -> None:
    async def scenario(world: World) -> None:
        client = await world.connected()
        with pytest.raises(MalformedMessageError):
            await client.ask(create("/a"), create("/b")[:-1])
        assert world.tree.exists("/a")
        client.end()
        again = Connection(world)
        await again.connect(client.session)
        assert again.session == client.session

    play(scenario)


def test_client_takes_what_it_has_asked_for_before_more_of_it_is_looked_at(play: Callable[[Scenario], None]) -> None:
    async def scenario(world: World) -> None:
        world.tree.create("/large", bytes(SIZE))
        client = await world.connected()
        read = int_(Kind.GET_DATA) + string("/large") + boolean(False)
        assert await client.ask(*[read] * 20, PING) == [0] * 21
        assert max(client.sizes) <= ANSWERED_BYTES_MAX + 2 * SIZE
        xids = [struct.unpack_from(">i", frame, 4)[0] for frame in client.sent]
        assert xids == list(range(21)), "each is answered once, in order"

    play(scenario)


def test_events_are_sent_to_connections_that_ask_nothing(play: Callable[[Scenario], None]) -> None:
    async def scenario(world: World) -> None:
        client, other = await world.connected(), await world.connected()
        assert await client.ask(int_(Kind.EXISTS) + string("/a") + boolean(True)) == [-101]
        await other.ask(create("/a"))
        await asyncio.sleep(0)
        assert client.sent[-1].endswith(b"/a")

    play(scenario)


def test_broker_itself_comes_between_the_slices_of_a_client(
    play: Callable[[Scenario], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(world: World) -> None:
        client = await world.connected()
        slices: list[int] = []

        def in_metadata_thread(function: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
            slices.append(len(slices))
            world.tree.create(f"/of-the-broker-{len(slices)}")
            return world.in_metadata_thread(function, *arguments)

        monkeypatch.setattr(world.listener, "_in_metadata_thread", in_metadata_thread)
        looks = iter(range(1_000_000))  # each look at the time ends a slice
        monkeypatch.setattr(world.listener._serving, "_now_s", lambda: next(looks) * 2 * SLICE_S)
        assert await client.ask(*[create(f"/{number}") for number in range(10)]) == [0] * 10
        assert len(slices) == 10

    play(scenario)


def test_broker_s_own_nodes_are_read_and_not_changed(play: Callable[[Scenario], None]) -> None:
    async def scenario(world: World) -> None:
        client = await world.connected()
        for path in (*paths.BROKER_ROOTS, "/brokers/topics/clicks", "/cluster/id", "/config/topics/clicks", "/admin/x"):
            if world.tree.exists(path) is None:
                world.tree.create(path, make_parents=True)
            deletion = int_(Kind.DELETE) + string(path) + int_(-1)
            setting = int_(Kind.SET_DATA) + string(path) + buffer(b"x") + int_(-1)
            assert await client.ask(deletion, setting, create(path + "/child")) == [Error.NO_AUTH] * 3
            assert await client.ask(int_(Kind.GET_DATA) + string(path) + boolean(False)) == [0]

    play(scenario)


def test_session_without_connection_or_nodes_goes_for_a_new_one_of_its_address(tmp_path: Path) -> None:
    clock = ManualClock()
    tree = EmbeddedMetadataStore(tmp_path / "tree.db", clock, keeps_sessions=True)

    async def scenario() -> None:
        world = World(tree, clock, max_client_cnxns=2)
        owner, connected = await world.connected(), await world.connected()
        await owner.ask(create("/owned", 1))
        owner.end()
        for _ in range(5 * SESSIONS_PER_CONNECTION):
            (await world.connected()).end()
        assert len(world.listener._sessions) == 2 * SESSIONS_PER_CONNECTION
        await world.pass_time(SWEEP_S)
        assert len(tree.store.kept_sessions()) == 2 * SESSIONS_PER_CONNECTION
        assert await connected.ask(PING) == [0]
        again = Connection(world)
        await again.connect(owner.session)
        assert again.session == owner.session
        assert tree.exists("/owned")

    asyncio.run(scenario())
    tree.close()


def test_sessions_with_connections_do_not_go_for_new_ones(tmp_path: Path) -> None:
    clock = ManualClock()
    tree = EmbeddedMetadataStore(tmp_path / "tree.db", clock, keeps_sessions=True)

    async def scenario() -> None:
        world = World(tree, clock, max_client_cnxns=1)
        clients = [await world.connected() for _ in range(SESSIONS_PER_CONNECTION)]
        with pytest.raises(CoordinationError, match=r"clients of 127\.0\.0\.1 have reached their limit of 4 sessions"):
            await world.connected()
        clients[0].end()
        await world.connected()

    asyncio.run(scenario())
    tree.close()
