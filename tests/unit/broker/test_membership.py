"""A broker that hears nothing of the tree, loses its session, or finds its id in use."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker import membership as membership_module
from barnabas.broker.membership import Membership
from barnabas.clock import ManualClock
from barnabas.coordination import paths, topic_metadata_store
from barnabas.coordination.embedded_metadata_store import EmbeddedMetadataStore
from barnabas.coordination.metadata_store import MetadataStoreUnavailableError
from barnabas.coordination.renewable_metadata_store import RenewableMetadataStore
from barnabas.coordination.values import BrokerRegistration
from barnabas.errors import ConfigurationError

TIMEOUT_S = 0.06
"""Of the session: it is asked a few times in it, in real time. How long it was silent is told by the test's clock."""


class Session(EmbeddedMetadataStore):
    """Answers when a test wants it to, and is lost when a test says so."""

    world: World

    @property
    def session_timeout_s(self) -> float | None:
        return TIMEOUT_S

    def on_session_end(self, call: Callable[[], None]) -> None:
        self.world.lose = call

    def ping(self, timeout_s: float) -> None:
        self.world.asked()


class Led:
    """What is needed of a partition; it tells what becomes of it."""

    def __init__(self, world: World) -> None:
        self.is_led = True
        self._world = world

    def fence(self) -> None:
        self.is_led = False
        self._world.events.put_nowait("fence")

    def unfence(self) -> None:
        self.is_led = True
        self._world.events.put_nowait("unfence")


class World:
    """The tree's server, and a broker that leads one partition."""

    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock()
        self.server = Session(folder / "tree.sqlite", self.clock)
        topic_metadata_store.prepare(self.server, "castle")
        Session.world = self
        self.lose: Callable[[], None] = lambda: None
        self.is_silent = False
        self.silence_s = 0.0
        """How much time passes with each question that is not answered."""
        self.cannot_open = 0
        self.events: asyncio.Queue[str] = asyncio.Queue()
        self.questions: asyncio.Queue[bool] = asyncio.Queue()
        """Of each whether nobody answered."""
        self.led = [Led(self)]
        self.replicas: Any = SimpleNamespace(leaders=lambda: self.led)
        self.watch: Any = SimpleNamespace(restart=lambda: self.events.put_nowait("begin anew"))
        self.tree = RenewableMetadataStore(self._open)
        self.random_epochs = [2**62 + 5, 2**40, 7, 2**61]

    def _open(self) -> Session:
        if self.cannot_open:
            self.cannot_open -= 1
            raise MetadataStoreUnavailableError("nobody answers")
        session = Session.__new__(Session)
        session._attach(self.server._store, owns_store=False)
        return session

    def asked(self) -> None:
        self.questions.put_nowait(self.is_silent)
        if self.is_silent:
            self.clock.advance(self.silence_s)
            raise MetadataStoreUnavailableError("silence")

    def membership(self, folder_id: str = "mine", port: int = 1) -> Membership:
        return Membership(
            self.tree,
            at_once,  # type: ignore[arg-type]
            at_once,
            self.clock,
            lambda: BrokerRegistration(1, "here", port, folder_id=folder_id),
            lambda: self.random_epochs.pop(0),
        )


async def at_once(function: Callable[..., Any], *arguments: Any) -> Any:
    await asyncio.sleep(0)
    return function(*arguments)


Run = Callable[[Callable[[World, Membership], Coroutine[Any, Any, None]]], None]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr(membership_module, "AGAIN_S", 0)
    made = World(tmp_path)
    yield made
    made.tree.close()
    made.server.close()


@pytest.fixture
def run(world: World) -> Run:
    def run_scenario(scenario: Callable[[World, Membership], Coroutine[Any, Any, None]]) -> None:
        async def bounded() -> None:
            membership = world.membership()
            await membership.register()
            task = asyncio.create_task(membership.keep(world.replicas, world.watch))
            try:
                async with asyncio.timeout(60):
                    await scenario(world, membership)
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

        asyncio.run(bounded())

    return run_scenario


def test_long_silence_fences_and_an_answer_lets_lead_again(run: Run) -> None:
    async def scenario(world: World, _membership: Membership) -> None:
        world.silence_s, world.is_silent = TIMEOUT_S, True
        assert await world.events.get() == "fence"
        world.is_silent = False
        assert await world.events.get() == "unfence"

    run(scenario)


def test_short_silence_changes_nothing(run: Run) -> None:
    async def scenario(world: World, _membership: Membership) -> None:
        for _ in range(3):
            world.silence_s, world.is_silent = TIMEOUT_S / 2, True
            while not await world.questions.get():
                pass
            world.is_silent = False
            # When it asks the second time, it knows that the first question was answered.
            for _ in range(2):
                while await world.questions.get():
                    pass
        assert world.events.empty()

    run(scenario)


def test_lost_session_fences_registers_and_reads_anew(run: Run) -> None:
    async def scenario(world: World, membership: Membership) -> None:
        epoch = membership.epoch
        world.cannot_open = 2
        world.lose()
        assert [await world.events.get() for _ in range(2)] == ["fence", "begin anew"]
        assert (epoch, membership.epoch) == (2**62 + 5, 2**40)
        assert topic_metadata_store.read_brokers(world.server)[1].epoch == membership.epoch
        # The next session can be lost as well, with what is led in it.
        world.led = [Led(world)]
        world.lose()
        assert [await world.events.get() for _ in range(2)] == ["fence", "begin anew"]
        assert world.events.empty()

    run(scenario)


def test_broker_is_a_member_from_its_registration_to_the_end_of_its_session(world: World) -> None:
    async def scenario() -> None:
        membership = world.membership()
        assert not membership.is_member
        await membership.register()
        assert membership.is_member
        world.lose()
        await asyncio.sleep(0)
        assert not membership.is_member
        await membership.register()
        assert membership.is_member

    asyncio.run(scenario())


async def be_silent_for_long(world: World) -> None:
    """Return when the tree was silent for long, and was heard again."""
    world.silence_s, world.is_silent = TIMEOUT_S, True
    for _ in range(2):
        while not await world.questions.get():
            pass
    world.is_silent = False
    for _ in range(2):
        while await world.questions.get():
            pass


def test_silence_and_an_answer_let_nothing_lead_that_a_lost_session_led(run: Run) -> None:
    async def scenario(world: World, _membership: Membership) -> None:
        world.lose()
        assert [await world.events.get() for _ in range(2)] == ["fence", "begin anew"]
        # What there is in the tree now was not read yet.
        await be_silent_for_long(world)
        assert world.events.empty()
        assert not world.led[0].is_led

    run(scenario)


def test_lost_session_fences_what_began_during_a_silence_too(run: Run) -> None:
    async def scenario(world: World, _membership: Membership) -> None:
        world.silence_s, world.is_silent = TIMEOUT_S, True
        assert await world.events.get() == "fence"
        world.led.append(Led(world))
        world.lose()
        assert [await world.events.get() for _ in range(2)] == ["fence", "begin anew"]
        assert not any(partition.is_led for partition in world.led)

    run(scenario)


def test_a_registration_that_somebody_deleted_is_made_again(run: Run) -> None:
    async def scenario(world: World, membership: Membership) -> None:
        epoch = membership.epoch
        await membership.check_registration({})  # was read before it registered
        assert world.events.empty()
        world.server.delete(paths.broker(1))
        await membership.check_registration(topic_metadata_store.read_brokers(world.server))
        assert [await world.events.get() for _ in range(2)] == ["fence", "begin anew"]
        assert topic_metadata_store.read_brokers(world.server)[1].epoch == membership.epoch != epoch

    run(scenario)


@pytest.mark.parametrize("changed", [b"nonsense", b"", None])
def test_a_registration_that_somebody_changed_is_written_again(run: Run, changed: bytes | None) -> None:
    async def scenario(world: World, membership: Membership) -> None:
        before = topic_metadata_store.read_brokers(world.server)
        path = paths.broker(1)
        sound = world.server.get(path).data
        world.server.set(path, sound.replace(b'"port":', b'"port":1') if changed is None else changed)
        await membership.check_registration(before)
        assert topic_metadata_store.read_brokers(world.server)[1].epoch == membership.epoch
        assert json.loads(world.server.get(path).data)["port"] == json.loads(sound)["port"]
        assert world.events.empty()

    run(scenario)


def test_registering_again_tells_in_the_same_epoch(run: Run) -> None:
    async def scenario(world: World, membership: Membership) -> None:
        epoch = membership.epoch
        await membership.announce()
        assert topic_metadata_store.read_brokers(world.server)[1].epoch == epoch

    run(scenario)


def test_another_broker_with_the_id_is_waited_for_as_long_as_a_session_lasts(world: World) -> None:
    async def scenario() -> None:
        other = world.server.new_session()
        topic_metadata_store.register_broker(other, BrokerRegistration(1, "elsewhere", 9, folder_id="another"))
        membership = world.membership()
        registering = asyncio.create_task(membership.register())
        for _ in range(10):
            await asyncio.sleep(0)
        assert not registering.done()
        other.close()
        async with asyncio.timeout(60):
            await registering
        assert topic_metadata_store.read_brokers(world.server)[1].registration.host == "here"

    asyncio.run(scenario())


def test_another_broker_with_the_id_that_lives_on_is_told(world: World) -> None:
    async def scenario() -> None:
        other = world.server.new_session()
        topic_metadata_store.register_broker(other, BrokerRegistration(1, "elsewhere", 9, folder_id="another"))
        registering = asyncio.create_task(world.membership().register())
        await asyncio.sleep(0)
        world.clock.advance(TIMEOUT_S * 2)
        async with asyncio.timeout(60):
            with pytest.raises(ConfigurationError, match="alive at elsewhere:9; choose another id"):
                await registering
        other.close()

    asyncio.run(scenario())
