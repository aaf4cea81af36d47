"""What mirrors tell of a topic is what is in the target, once, wherever they are killed, and if there are two.

The world is that of `test_mirror_exactly_once`; here mirrors also tell, die while they tell, and go on from what the
ledger says was told. Each batch of the source is in windows of its own choice, and of several producers.
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.audit.events import MonitoringEvent
from barnabas.audit.identities import Producer
from barnabas.audit.windows import NOTHING, WINDOW_MS, Tally, tally
from barnabas.mirror.audit_account import PartitionAuditAccount, TopicAuditAccount
from barnabas.records import BatchBuilder, Compression
from barnabas.records.header import stamp
from barnabas.records.mirror_identity import producer_id_of
from tests.properties import test_mirror_exactly_once as exactly_once
from tests.support.searches import examples

PRODUCERS = 2
LINEAGE = exactly_once.LINEAGE
Place = tuple[int, Producer]


class Source(exactly_once.Source):
    """A log of batches of several producers, whose records are in up to three windows."""

    def __init__(self) -> None:
        super().__init__(0)
        self.encoded: list[tuple[int, bytes]] = []
        self.counted: dict[Place, Tally] = {}
        self.upstream: dict[Place, Tally] = {}
        self._sequences = [0] * PRODUCERS

    def append(self, count: int) -> None:
        builder = BatchBuilder(Compression.LZ4)
        who = (self.end + count) % PRODUCERS
        theirs, ours = Producer(who, 0, 0), Producer(producer_id_of(LINEAGE), 0, 0)
        for number in range(count):
            offset = self.end + number
            window_ms = (offset // 7 % 3) * WINDOW_MS
            builder.append(window_ms + number, None, b"%d" % offset)
            for into, producer, of_producer in (
                (self.counted, ours, offset),
                (self.upstream, theirs, self._sequences[who] + number),
            ):
                place = (window_ms, producer)
                into[place] = into.get(place, NOTHING).plus(tally(producer, of_producer, 1, 0))
        data = bytearray(builder.build(who, 0, self._sequences[who]))
        stamp(data, 0, self.end, 0)
        self.encoded.append((self.end + count, bytes(data)))
        self._sequences[who] += count
        self.end += count

    def fetch(self, offset: int, count: int) -> bytes:
        return b"".join([data for end, data in self.encoded if end > offset][:count])


class Mirror(exactly_once.Mirror):
    """A mirror that tells."""

    def __init__(self, world: World) -> None:
        self.world = world
        super().__init__(world.source, world.target, [])

    def die(self) -> None:
        super().die()
        self.copy.may_have_holes = False
        self.topic = TopicAuditAccount("clicks", "there", "clicks", "here", LINEAGE, "mirror")
        self.copy.account = PartitionAuditAccount(self.topic, 0)

    def place(self) -> None:
        super().place()
        account, offsets = self.copy.account, self.copy.offsets
        assert account is not None
        assert offsets is not None
        account.begin(self.world.reported_to)
        self.copy.place(offsets, self.copy.origin, self.now_s, account.counted_to)

    def tell(self, events: int | None = None) -> None:
        """Tell; with a number, be killed after so many events."""
        account = self.copy.account
        assert account is not None
        if account.counted_to is None:
            return
        counted_to = account.counted_to
        self.topic.read(self.topic.to_be_read, [MonitoringEvent.from_json(each) for each in self.world.told])
        unreported_events = self.topic.unreported_events()
        self.world.told += [each.to_json() for each in unreported_events[:events]]
        if events is not None:
            self.die()
            return
        self.topic.mark_reported(unreported_events)
        account.reported_to = self.world.reported_to = counted_to


class World:
    """Mirrors between one source and one target, what was told, and the ledger's word of that."""

    def __init__(self) -> None:
        self.source, self.target = Source(), exactly_once.Target()
        self.told: list[bytes] = []
        self.reported_to = 0
        self.mirrors = [Mirror(self) for _ in range(2)]

    def do(self, step: str, who: int, number: int) -> None:
        mirror = self.mirrors[who]
        steps = {
            "append": lambda: self.source.append(1 + number % 5),
            "work": mirror.work,
            "answer lost": lambda: mirror.deliver(answered=False),
            "connection lost": mirror.lose_connection,
            "die": mirror.die,
            "tell": mirror.tell,
            "tell and die": lambda: mirror.tell(number % 4),
        }
        steps[step]()

    def finish(self) -> None:
        for mirror in self.mirrors:
            mirror.lose_connection()
            while mirror.sent:
                mirror.deliver()
        last = self.mirrors[0]
        while not last.copy.is_placed or last.copy.position < self.source.end or last.copy.is_waiting:
            last.work()
        while last.copy.has_ready or last.sent:
            last.work()
        last.tell()

    def account(self) -> tuple[dict[Place, Tally], dict[Place, Tally]]:
        """Return what was told, the last word of each window: under the target's and under the source's identities."""
        latest: dict[bytes, MonitoringEvent] = {}
        for event in map(MonitoringEvent.from_json, self.told):
            if event.key not in latest or latest[event.key].number <= event.number:
                latest[event.key] = event
        counted = {(each.window_ms, who): found for each in latest.values() for who, found in each.counted.items()}
        upstream = {
            (each.window_ms, who): found
            for each in latest.values()
            if each.upstream
            for who, found in each.upstream.counted.items()
        }
        return counted, upstream


STEP = st.tuples(
    st.sampled_from(["append", "work", "work", "tell", "tell and die", "answer lost", "connection lost", "die"]),
    st.integers(0, 1),
    st.integers(0, 100),
)


@settings(max_examples=examples(150))
@given(st.lists(STEP, min_size=20, max_size=60))
def test_what_is_told_is_what_is_in_the_target(steps: list[tuple[str, int, int]]) -> None:
    world = World()
    for step in steps:
        world.do(*step)
    world.finish()
    assert world.target.values == list(range(world.source.end))
    assert world.account() == (world.source.counted, world.source.upstream)
