"""The consumer's core under any order of events: calls of two readers, answers, disconnections, rebalances, time.

A reader's call is taken as far as it goes after each event, as a shell does that is woken by news or by the time. What
must hold, whatever happens in whatever order:

- nobody sleeps through anything: a call that is not to be woken yet would have to wait if it were asked;
- a call that has a deadline ends when that has come;
- of each partition records come without a gap from where the reading of it began;
- nothing is committed that was not handed out;
- once closed, every call ends, and with a ClosedError.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from barnabas.client.consumer.call_steps import FOREVER_S, Commit, Join, Leave
from barnabas.errors import ApiError, BarnabasError, ClosedError, DisconnectedError, ErrorCode
from barnabas.model import TopicPartition
from tests.support.consumer_core import TOPIC, Call, Scene
from tests.support.searches import examples

PARTITIONS = 2
SHARES = st.sets(st.integers(0, PARTITIONS - 1))
TROUBLE = [
    DisconnectedError("gone"),
    ApiError(ErrorCode.NOT_COORDINATOR),
    ApiError(ErrorCode.REBALANCE_IN_PROGRESS),
]


class AnyOrder(RuleBasedStateMachine):
    """One member of a group."""

    @initialize(strategy=st.sampled_from(["range", "cooperative-sticky"]), commits=st.booleans())
    def begin(self, strategy, commits):
        self.scene = Scene(
            group="g",
            partition_assignment_strategy=strategy,
            enable_auto_commit=commits,
            default_api_timeout_ms=5_000,
            fetch_max_bytes=10_000,
        )
        self.core, self.state = self.scene.core, self.scene.state
        self.core.subscribe(TOPIC, None, ("assigned", "revoked", "lost"))
        self.scene.on_metadata()
        self.polls: list[Call | None] = [None, None]
        self.deadlines = [0.0, 0.0]
        self.ends: list[Call] = []
        """Calls that end the subscription, or the consumer."""
        self.works = []
        self.fetches = []
        self.tells = []
        self.next_offset = {}
        """Of what each partition must hand out next."""
        self.handed = {}
        """The offset after the greatest one handed out."""
        self.committed = {}
        self.closing = False

    # --- the application --------------------------------------------------------------------------------

    @precondition(lambda self: None in self.polls)
    @rule(timeout_s=st.sampled_from([0.0, 1.0, 20.0, FOREVER_S]), records_max=st.sampled_from([1, 2, 100]))
    def poll(self, timeout_s, records_max):
        reader = self.polls.index(None)
        self.deadlines[reader] = self.scene.clock.monotonic() + timeout_s
        self.polls[reader] = Call(self.core.poll(records_max, timeout_s)).go_on()

    @rule(reader=st.integers(0, 1))
    def interrupt(self, reader):
        call = self.polls[reader]
        if call is not None and not call.tells:  # a listener is never interrupted
            call.steps.close()
            self.polls[reader] = None

    @precondition(lambda self: self.state.subscription.partitions and not self.closing)
    @rule(data=st.data(), offset=st.integers(0, 30))
    def seek(self, data, offset):
        tp = data.draw(st.sampled_from(sorted(self.state.subscription.partitions)))
        self.core.seek(tp, offset)
        self.next_offset[tp] = offset
        self.handed[tp] = max(self.handed.get(tp, 0), offset)  # a seek says where the application is as well

    @precondition(lambda self: self.state.subscription.partitions and not self.closing)
    @rule(paused=st.booleans())
    def pause(self, paused):
        self.core.set_paused(list(self.state.subscription.partitions), paused)

    @precondition(lambda self: not self.ends)
    @rule()
    def unsubscribe(self):
        if not self.closing:
            self.ends.append(Call(self.core.unsubscribe(nested=False)).go_on())

    @precondition(lambda self: not self.ends and not self.closing and not self.state.subscription.by_topics)
    @rule()
    def subscribe_again(self):
        self.core.subscribe(TOPIC, None, ("assigned", "revoked", "lost"))

    @rule(all_done=st.booleans())
    def close(self, all_done):
        self.closing = True
        self.ends.append(Call(self.core.close(all_done=all_done)).go_on())

    @precondition(lambda self: self.tells)
    @rule(fails=st.booleans())
    def listener_returns(self, fails):
        self.state.on_listener_called(self.tells.pop(0), ValueError("a listener's") if fails else None)

    # --- the group --------------------------------------------------------------------------------------

    @precondition(lambda self: self.works)
    @rule(data=st.data(), share=SHARES, fails=st.sampled_from([None, None, *TROUBLE]))
    def work_ends(self, data, share, fails):
        work = self.works.pop(data.draw(st.integers(0, len(self.works) - 1)))
        if work.done:
            return
        if isinstance(work, Leave):
            self.state.membership.on_left(work.reason)
            self.state.finish_task(work)
        elif fails is not None:
            self.state.finish_task(work, fails)
        elif isinstance(work, Join):
            self.scene.join(work, sorted(share))
        else:
            assert isinstance(work, Commit)
            self.committed |= {tp: each.offset for tp, each in work.offsets.items()}
            self.state.finish_task(work)

    @rule()
    def others_come_or_go(self):
        self.state.membership.rejoin("others have come or gone")
        self.state.notify_change()

    @rule(code=st.sampled_from([ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID]))
    def group_goes_on_without_this_member(self, code):
        self.state.membership.on_heartbeat(code, self.state.membership.generation)
        self.state.notify_change()

    # --- brokers ----------------------------------------------------------------------------------------

    @rule()
    def positions_are_found(self):
        missing = self.state.missing_positions()
        offsets = {state: self.committed.get(state.tp, 0) for state in missing}
        self.state.set_positions(missing, offsets)
        self.next_offset |= {state.tp: offset for state, offset in offsets.items() if state.position == offset}

    @rule()
    def fetch_leaves(self):
        if len(self.fetches) < 2:
            fetch = self.scene.fetch()
            if fetch is not None:
                self.fetches.append(fetch)

    @precondition(lambda self: self.fetches)
    @rule(count=st.integers(0, 4), is_lost=st.booleans())
    def fetch_is_answered(self, count, is_lost):
        fetch = self.fetches.pop(0)
        if is_lost:
            self.state.fetcher.on_failure(fetch)
        else:
            self.scene.answer(fetch, count)

    @rule()
    def no_broker_can_be_reached(self):
        self.scene.on_unreachable()

    @rule()
    def metadata_comes(self):
        self.scene.on_metadata()

    @rule(seconds=st.sampled_from([0.5, 3.0, 30.0]))
    def time_passes(self, seconds):
        self.scene.clock.advance(seconds)

    # --- what must hold ---------------------------------------------------------------------------------

    def take_further(self, call):
        """As the shell does. A call that it would let sleep has nothing to do but to wait."""
        while True:
            if call.tells and call.step not in self.tells:
                self.tells.append(call.step)
            if call.ended or call.tells:
                return
            woken, before = self.scene.may_go_on(call), call.step
            call.go_on()
            if not woken:
                assert call.waits, "slept through something"
                assert call.step.until_s >= before.until_s, "would have slept too long"
                return

    @invariant()
    def everybody_goes_as_far_as_possible(self):
        if not hasattr(self, "core"):
            return
        for _ in range(3):  # what one does may be news for another
            for reader in range(2):
                self.look_at_poll(reader)
            for call in list(self.ends):
                self.look_at_end(call)
            while (work := self.state.next_task()) is not None:
                self.works.append(work)

    def look_at_poll(self, reader):
        call = self.polls[reader]
        if call is None:
            return
        if not call.ended:
            self.take_further(call)
        if call.ended:
            self.polls[reader] = None
            self.check(call)
        elif not call.tells:
            assert self.scene.clock.monotonic() < self.deadlines[reader]
            assert not self.closing

    def look_at_end(self, call):
        if not call.ended:
            self.take_further(call)
        if call.ended:
            self.ends.remove(call)
            assert call.error is None or isinstance(call.error, (BarnabasError, ValueError))
            assert not isinstance(call.error, AssertionError)

    def check(self, call):
        if call.error is not None:
            assert isinstance(call.error, (BarnabasError, ValueError)), repr(call.error)
            return
        for record in call.result:
            tp = TopicPartition(record.topic, record.partition)
            assert record.offset == self.next_offset[tp]
            assert record.value == b"%d/%d" % (record.partition, record.offset)
            self.next_offset[tp] = record.offset + 1
            self.handed[tp] = max(self.handed.get(tp, 0), record.offset + 1)

    @invariant()
    def only_what_was_handed_out_is_committed(self):
        for tp, offset in getattr(self, "committed", {}).items():
            assert offset <= self.handed.get(tp, 0)

    def teardown(self):
        """Closing ends everything, wherever it was."""
        if not hasattr(self, "core"):
            return
        self.close(all_done=True)
        for tell in self.tells:
            self.state.on_listener_called(tell)
        self.tells.clear()
        self.everybody_goes_as_far_as_possible()
        self.state.end_tasks()
        for work in self.works:
            if not work.done:
                self.state.finish_task(work, ClosedError("this consumer was closed"))
        for _ in range(3):
            self.everybody_goes_as_far_as_possible()
        assert self.polls == [None, None]
        assert not self.ends
        assert isinstance(Call(self.core.poll(1, 1.0)).go_on().error, ClosedError)


AnyOrder.TestCase.settings = settings(max_examples=examples(60), stateful_step_count=40)
TestAnyOrder = AnyOrder.TestCase
