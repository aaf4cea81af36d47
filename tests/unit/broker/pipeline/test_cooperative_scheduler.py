"""Work that may be long takes turns, and what is short hardly waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator

import pytest

from barnabas.broker.pipeline.scheduler import SHORT_TURNS, SLICE_S, UNFINISHED, CooperativeScheduler


class Loop:
    """A clock, and the calls that the next round of an event loop would make."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.calls: list[Callable[[], None]] = []
        self.scheduler = CooperativeScheduler(lambda: self.now_s, self.calls.append)

    def next_round(self) -> None:
        calls, self.calls[:] = list(self.calls), []
        for call in calls:
            call()

    def work(self, steps: int, step_s: float) -> Generator[None, None, str]:
        for _ in range(steps):
            self.now_s += step_s
            yield
        return "done"


def test_short_work_is_done_at_once() -> None:
    loop = Loop()
    assert loop.scheduler.run_slice(loop.work(3, 0.0)) == "done"


def test_long_work_ends_its_turn_and_goes_on_in_the_next() -> None:
    loop = Loop()
    work = loop.work(5, SLICE_S / 2)
    assert loop.scheduler.run_slice(work) is UNFINISHED
    assert loop.now_s == SLICE_S
    loop.next_round()
    assert loop.scheduler.run_slice(work) is UNFINISHED
    loop.next_round()
    assert loop.scheduler.run_slice(work) == "done"


def test_all_that_is_done_in_one_round_shares_its_time() -> None:
    loop = Loop()
    assert loop.scheduler.run_slice(loop.work(10, SLICE_S)) is UNFINISHED
    assert loop.scheduler.is_over(), "the next one that comes in this round waits"
    loop.next_round()
    assert not loop.scheduler.is_over()


def test_what_work_raises_is_passed_on() -> None:
    def failing() -> Generator[None, None, None]:
        yield
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        Loop().scheduler.run_slice(failing())


def test_many_that_become_due_together_are_woken_a_few_in_a_round() -> None:
    async def scenario() -> None:
        loop = Loop()
        waiters = [asyncio.get_running_loop().create_future() for _ in range(3 * SHORT_TURNS)]
        for number, waiter in enumerate(waiters):
            loop.scheduler.wake(waiter, number)
        assert sum(waiter.done() for waiter in waiters) == SHORT_TURNS
        waiters[SHORT_TURNS].cancel()
        loop.next_round()
        assert sum(waiter.done() for waiter in waiters) == 2 * SHORT_TURNS + 1, "one that is gone is passed over"
        loop.next_round()
        assert waiters[-1].result() == 3 * SHORT_TURNS - 1
        assert loop.scheduler.waiting == 0

    asyncio.run(scenario())


def test_long_and_short_work_does_not_share_a_round() -> None:
    async def scenario() -> None:
        loop = Loop()
        seen: list[str] = []

        async def wait(name: str, *, is_short: bool) -> None:
            await loop.scheduler.pause(is_short=is_short)
            seen.append(name)

        assert loop.scheduler.run_slice(loop.work(1, SLICE_S)) is UNFINISHED, "from here on all stand in line"
        names = ["short", "short", "long", "short", "long", "long"]
        tasks = [asyncio.create_task(wait(name, is_short=name == "short")) for name in names]
        rounds = []
        while len(seen) < len(names):
            await asyncio.sleep(0)
            before = len(seen)
            loop.next_round()
            for _ in range(3):
                await asyncio.sleep(0)
            if seen[before:]:
                rounds.append(seen[before:])
        assert rounds == [["short", "short"], ["long"], ["short"], ["long"], ["long"]]
        await asyncio.gather(*tasks)

    asyncio.run(scenario())


def test_two_that_take_long_go_on_in_turns_and_others_come_in_between() -> None:
    async def scenario() -> None:
        now_s = 0.0
        seen: list[str] = []

        def work(name: str) -> Generator[None, None, str]:
            nonlocal now_s
            for _ in range(4):
                now_s += SLICE_S
                seen.append(name)
                yield
            return name

        scheduler = CooperativeScheduler(lambda: now_s)
        both = [asyncio.create_task(scheduler.finish(work(name))) for name in "ab"]
        while not all(task.done() for task in both):
            seen.append(".")
            await asyncio.sleep(0)
        told = "".join(seen)
        assert sorted(told.replace(".", "")) == ["a"] * 4 + ["b"] * 4
        later = told[told.index("b") + 1 :]  # the first step of each is done when it comes
        assert all(one not in later for one in ("aa", "bb", "ab", "ba")), f"others have their turn in between: {told}"
        assert later.replace(".", "").startswith("abab"), f"in turns: {told}"

    asyncio.run(scenario())


def test_some_steps_are_done_however_late_it_is() -> None:
    loop = Loop()
    assert loop.scheduler.run_slice(loop.work(10, SLICE_S)) is UNFINISHED
    assert loop.scheduler.run_slice(loop.work(3, SLICE_S), at_least=4) == "done"
    assert loop.scheduler.run_slice(loop.work(4, SLICE_S), at_least=4) is UNFINISHED
