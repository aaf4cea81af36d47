"""The brokers of `tests.support.replication_model` under any order of events, and what must hold after each of them.

Everything below the high watermark that a client may have seen has to be on every in-sync replica that has not lost its
memory; the high watermark never goes back; no epoch has two leaders. An unclean claim may lose records, and it alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from barnabas.coordination.values import NO_LEADER
from barnabas.replication.leader_election import Candidacy
from tests.support.replication_model import LAG_TIME_MAX_S, REPLICAS, Broker, MetadataStore, Record

FAILURE_EVERY = 5
"""One event in five is a failure."""
ROUNDS_TO_HEAL = 40
FETCHES_TO_CATCH_UP = 200

Event = Callable[[], object]


class Cluster:
    """Three brokers; `committed` is what some client may have seen."""

    def __init__(self, is_unclean_allowed: bool) -> None:
        self.is_unclean_allowed = is_unclean_allowed
        self.tree = MetadataStore()
        self.brokers = {each: Broker(each, self.tree) for each in REPLICAS}
        self.committed: list[Record] = []
        self.leaders: dict[int, int] = {}
        self.value = 0
        self.now_s = 0.0
        for broker in self.brokers.values():
            broker.start(self.now_s)
        self.elect()

    def play(self, choice: int) -> None:
        """Let one of the events happen that can happen now, and check; 0 stands for no event."""
        if not choice:
            return
        choice, is_progress = divmod(choice, FAILURE_EVERY)
        events = list(self.progress() if is_progress else self.failures(choice))
        if events:
            events[choice % len(events)]()
            self.check()

    def progress(self) -> Iterator[Event]:
        """Yield what happens when all goes well."""
        yield self.elect
        for broker in self.brokers.values():
            if broker.leading is not None:
                yield partial(self.append, broker)
                yield partial(self.observe, broker)
                if broker.proposal is None and (wanted := broker.wanted_isr(self.now_s)) is not None:
                    yield partial(broker.propose, wanted)
            elif (leader := self.leader_of(broker)) is not None:
                yield partial(self.fetch, broker, leader)
                yield partial(self.catch_up, broker, leader)
            if broker.reply is not None:
                yield broker.receive
            if broker.is_registered:
                yield from self.talk_with_tree(broker)
            else:
                yield partial(broker.start, self.now_s)

    def talk_with_tree(self, broker: Broker) -> Iterator[Event]:
        yield partial(broker.read, self.now_s)
        yield broker.tell
        if broker.proposal is not None:
            yield partial(broker.settle, is_answered=True)
        if broker.leading is None and (claim := broker.wanted_claim(self.is_unclean_allowed)):
            yield partial(self.claim, broker, claim)

    def failures(self, choice: int) -> Iterator[Event]:
        """Yield what happens otherwise."""
        yield self.wait
        yield partial(self.lose_power, choice // 7)
        for broker in self.brokers.values():
            yield partial(self.tree.expire, broker.id)
            if broker.is_running:
                yield broker.kill
                yield partial(self.crash, broker, None)
                yield partial(self.crash, broker, choice // 7 % (broker.end + 1))
                yield partial(broker.start, self.now_s)
            if broker.leading is not None and broker.is_registered:
                yield partial(broker.hand_over, leaves=bool(choice // 7 % 2))
                if broker.proposal is not None:
                    yield partial(broker.settle, is_answered=False)

    # -- events --------------------------------------------------------------------------------------------------

    def append(self, broker: Broker) -> None:
        self.value += 1
        assert broker.leading is not None
        broker.append([Record(broker.leading.leader_epoch, self.value)])

    def leader_of(self, broker: Broker) -> Broker | None:
        leader = self.brokers.get(broker.state.leader)
        return leader if broker.is_running and leader is not None and broker.can_fetch_from(leader) else None

    def fetch(self, follower: Broker, leader: Broker) -> None:
        follower.fetch_from(leader, self.now_s)

    def catch_up(self, follower: Broker, leader: Broker) -> None:
        """Fetch until there is nothing more; the last answer, which may tell a new high watermark, is on its way."""
        for _ in range(FETCHES_TO_CATCH_UP):
            follower.receive()
            follower.fetch_from(leader, self.now_s)
            if follower.reply is not None and follower.reply.content == []:
                return
        raise AssertionError("a follower does not come to the end of its leader's log")

    def claim(self, broker: Broker, claim: Candidacy) -> None:
        may_lose, members = claim.is_unclean or broker.has_lost_memory, self.tree.stood
        if not broker.claim(claim, self.now_s) or not may_lose:
            return
        if not self.is_unclean_allowed:
            most = max(self.kept_by(self.brokers[each]) for each in members)
            assert self.kept_by(broker) == most, f"broker {broker.id} leads, and others of {members} have more"
        self.lose_what_is_not_in(broker)

    def kept_by(self, broker: Broker) -> int:
        """Return how many of the committed records a broker has, up to the first that it lacks."""
        kept = (at for at, record in enumerate(self.committed) if broker.log[at : at + 1] != [record])
        return next(kept, len(self.committed))

    def lose_what_is_not_in(self, broker: Broker) -> None:
        """Leaders of old have to stop before they can be taken for dead: what they went on to promise would be lost."""
        self.committed = self.committed[: self.kept_by(broker)]
        for each in self.brokers.values():
            if each is not broker:
                each.leading = each.proposal = None

    def elect(self) -> None:
        """Let all brokers read, and those claim that may, in their order."""
        registered = [each for each in self.brokers.values() if each.is_registered]
        for broker in registered:
            broker.read(self.now_s)
            broker.tell()
        for broker in registered:
            broker.read(self.now_s)
        wanted = {each.id: each.wanted_claim(self.is_unclean_allowed) for each in registered if each.leading is None}
        claims = [(claim.rank, broker_id, claim) for broker_id, claim in wanted.items() if claim is not None]
        for _, broker_id, claim in sorted(claims):
            self.claim(self.brokers[broker_id], claim)
        for broker in registered:
            broker.read(self.now_s)

    def crash(self, broker: Broker, kept: int | None) -> None:
        """End a process whose session is known to have ended, and start it again."""
        broker.kill(kept)
        broker.start(self.now_s)

    def lose_power(self, choice: int) -> None:
        """End all processes at once, and take the memory of all machines."""
        for broker in self.brokers.values():
            choice, kept = divmod(choice, broker.end + 1)
            broker.kill(kept)

    def wait(self) -> None:
        self.now_s += LAG_TIME_MAX_S * 0.6

    def heal(self) -> None:
        """Bring all brokers back and deliver all messages until the replicas are in sync and the same."""
        for broker in self.brokers.values():
            if not broker.is_registered:
                broker.start(self.now_s)
        for _ in range(ROUNDS_TO_HEAL):
            self.now_s += 1
            self.elect()
            for broker in self.brokers.values():
                if broker.leading is not None:
                    self.append(broker)
                    if broker.proposal is None and (wanted := broker.wanted_isr(self.now_s)) is not None:
                        broker.propose(wanted)
                        broker.settle(is_answered=True)
                elif (leader := self.leader_of(broker)) is not None:
                    self.catch_up(broker, leader)
            self.check()

    # -- what must hold ------------------------------------------------------------------------------------------

    def check(self) -> None:
        for broker in self.brokers.values():
            if broker.leading is not None:
                self.observe(broker)
        state = self.tree.state
        assert state.leader in {NO_LEADER, *state.isr}
        assert set(state.isr) <= set(REPLICAS)
        for broker_id in state.isr:
            broker = self.brokers[broker_id]
            if not broker.has_lost_memory:
                assert broker.log[: len(self.committed)] == self.committed, f"broker {broker_id} lacks records"

    def observe(self, broker: Broker) -> None:
        """See what a client sees: the log below the high watermark, once the leader knows that."""
        assert broker.leading is not None
        epoch = broker.leading.leader_epoch
        assert self.leaders.setdefault(epoch, broker.id) == broker.id, "an epoch has two leaders"
        broker.high_watermark = high_watermark = broker.leading.high_watermark(broker.end)
        if not broker.leading.knows_high_watermark:
            return
        visible = broker.log[:high_watermark]
        known = min(len(visible), len(self.committed))
        assert visible[:known] == self.committed[:known], "two records at one offset"
        if epoch == max(self.leaders):
            assert known == len(self.committed), "the high watermark went back"
        self.committed = max(self.committed, visible, key=len)

    def check_healed(self) -> None:
        """Once all is healed, all agree, and the high watermark is where the log ends."""
        leader = self.brokers[self.tree.state.leader]
        assert self.tree.state.isr == REPLICAS
        assert leader.leading is not None
        for broker in self.brokers.values():
            assert broker.log[: len(self.committed)] == self.committed
            assert [start for start in broker.epochs.entries if start.start_offset < broker.end] == epochs_of(
                broker.log
            )


def epochs_of(log: list[Record]) -> list[tuple[int, int]]:
    """Return each epoch of a log with its first offset, as the records tell."""
    starts: dict[int, int] = {}
    for offset, record in enumerate(log):
        starts.setdefault(record.epoch, offset)
    return list(starts.items())
