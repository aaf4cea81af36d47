"""Consumers among themselves, over a model of the tree: in no order of events does one read what another owns, and in
the end every partition of the topics that somebody wants has one owner.

A step of a consumer has two halves, what the tree does and what the consumer hears of it; watches and the ends of
sessions come late. Consumers come and go, are crashed, lose their sessions, change their minds; topics grow and go.
"""

from __future__ import annotations

from itertools import count

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from barnabas.client.consumer.zookeeper_assignment import AssignmentStep, SubscriptionSnapshot, ZooKeeperAssignment
from barnabas.model import TopicPartition
from tests.support.searches import examples

TOPICS = st.sampled_from([{"t"}, {"u"}, {"t", "u"}])


class ModelMetadataStore:
    """The registries, and who watches them."""

    def __init__(self):
        self.counts = {"t": 5}
        self.ids = {}
        self.owners = {}
        self.watchers = set()

    def read(self, watcher):
        self.watchers.add(watcher)
        return SubscriptionSnapshot(dict(self.ids), dict(self.counts))

    def changed(self):
        for watcher in self.watchers:
            watcher.wake_count.append("change")
        self.watchers = set()

    def register(self, name, topics):
        self.ids[name] = set(topics)
        self.changed()

    def unregister(self, name):
        if self.ids.pop(name, None) is not None:
            self.changed()

    def release(self, session):
        self.owners = {tp: each for tp, each in self.owners.items() if each != session}

    def claim(self, session, partitions):
        if self.owners.keys() & partitions:
            return False
        self.owners.update(dict.fromkeys(partitions, session))
        return True


class Player:
    """A consumer: its ownership, and in place of the shell the few steps in which it is driven."""

    def __init__(self, tree, sessions, name, topics):
        self.tree = tree
        self.name = name
        self.sessions = sessions
        self.session = next(sessions)
        self.topics = topics
        self.assignment = ZooKeeperAssignment("g", name)
        self.reads = set()
        self.wake_count = []
        self.half_done = None
        """The step that the tree has done, in which of the consumer's sessions, and the answer."""

    def poll(self):
        """What the polling thread does: lose, give up, and begin to take partitions where needed."""
        assignment = self.assignment
        if assignment.rejoin_needed and not assignment.joining:
            self.reads = set()
            assignment.on_lost_given_up()
            assignment.begin(self.topics)

    def step(self):
        """Half a step."""
        if self.half_done is not None:
            (step, session, answer), self.half_done = self.half_done, None
            if session == self.assignment.session:
                self.hear(step, answer)
            return
        assignment = self.assignment
        if assignment.joining:
            step = assignment.next_step()
        elif assignment.must_read:
            step = AssignmentStep.READ
        else:
            return
        self.half_done = step, assignment.session, self.do(step)

    def do(self, step):
        if step is AssignmentStep.REGISTER:
            self.tree.register(self.name, self.assignment.topics)
        elif step is AssignmentStep.RELEASE:
            self.tree.release(self.session)
        elif step is AssignmentStep.READ:
            self.assignment.on_reading()
            return self.tree.read(self)
        elif step is AssignmentStep.CLAIM:
            return self.tree.claim(self.session, self.assignment.on_claiming())
        return None

    def hear(self, step, answer):
        assignment = self.assignment
        if step is AssignmentStep.REGISTER:
            assignment.on_registered()
        elif step is AssignmentStep.RELEASE:
            assignment.on_released()
        elif step is AssignmentStep.PAUSE:
            assignment.on_paused()
        elif step is AssignmentStep.READ:
            assignment.on_read(answer)
        elif answer:
            self.reads = set(assignment.on_claimed())
        else:
            assignment.on_refused()

    def hear_news(self):
        if self.wake_count and self.wake_count.pop(0) == "change":
            self.assignment.on_change()

    def expire(self):
        """The servers end its session; it is told at once that it may own nothing any more, as it counts for itself."""
        self.assignment.on_session_lost("expired")
        self.reads = set()
        self.end()

    def end(self):
        self.tree.watchers.discard(self)
        self.wake_count = []
        self.tree.release(self.session)
        self.tree.unregister(self.name)
        self.session = next(self.sessions)

    def leave(self):
        self.assignment.on_left("slow")
        self.reads = set()
        self.half_done = None
        self.tree.release(self.session)
        self.assignment.on_released()
        self.tree.unregister(self.name)


class Consumers(RuleBasedStateMachine):
    """Events in any order."""

    def __init__(self):
        super().__init__()
        self.tree = ModelMetadataStore()
        self.names = (f"c{number}" for number in count())
        self.sessions = count(1)
        self.players = []

    def one(self, data):
        return data.draw(st.sampled_from(self.players))

    @rule(topics=TOPICS)
    def add(self, topics):
        if len(self.players) < 4:
            self.players.append(Player(self.tree, self.sessions, next(self.names), topics))

    @precondition(lambda self: self.players)
    @rule(data=st.data(), times=st.integers(1, 12))
    def drive(self, data, times):
        player = self.one(data)
        for _ in range(times):
            data.draw(st.sampled_from([player.poll, player.step, player.step, player.hear_news]))()

    @precondition(lambda self: self.players)
    @rule(data=st.data())
    def crash(self, data):
        player = self.one(data)
        self.players.remove(player)
        player.end()

    @precondition(lambda self: self.players)
    @rule(data=st.data())
    def expire(self, data):
        self.one(data).expire()

    @precondition(lambda self: self.players)
    @rule(data=st.data())
    def leave(self, data):
        self.one(data).leave()

    @precondition(lambda self: self.players)
    @rule(data=st.data(), topics=TOPICS)
    def subscribe(self, data, topics):
        player = self.one(data)
        player.topics = topics
        player.assignment.rejoin("the subscription has changed")

    @rule(topic=st.sampled_from("tu"), partitions=st.integers(0, 7))
    def make_topic(self, topic, partitions):
        self.tree.counts[topic] = partitions
        self.tree.changed()

    @precondition(lambda self: self.players)
    @rule()
    def settle(self):
        """Nothing happens any more: all come to rest, and all is shared out."""
        for _ in range(60 * len(self.players)):
            for player in self.players:
                player.poll()
                player.hear_news()
                player.step()
        wanted = {
            TopicPartition(topic, number)
            for topic, partitions in self.tree.counts.items()
            for number in range(partitions)
            if any(topic in player.topics for player in self.players)
        }
        assert self.tree.owners.keys() == wanted
        for player in self.players:
            assert not player.assignment.joining
            assert not player.assignment.rejoin_needed
            assert {tp.topic for tp in player.reads} <= player.topics

    @invariant()
    def nobody_reads_what_it_does_not_own(self):
        for player in self.players:
            assert all(self.tree.owners.get(tp) == player.session for tp in player.reads)

    @invariant()
    def what_is_in_the_tree_is_held(self):
        for player in self.players:
            owned = {tp for tp, session in self.tree.owners.items() if session == player.session}
            assert owned <= player.assignment.held


TestConsumers = Consumers.TestCase
TestConsumers.settings = settings(max_examples=examples(200), stateful_step_count=30)
