"""What the application gets next, in every way of reading, and when it has to wait for it.

Written once for applications that block and for those that await: see `shells`. The ways of reading may be mixed.
In all of them asking for more says that what was handed out before has been dealt with; the group is looked after
whenever more is asked for; and damage, and whatever else must be told, is told when there is nothing else to hand
out before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from barnabas.client.cluster import Cluster
from barnabas.client.config import ConsumerConfig
from barnabas.client.consumer.cursor import Cursor
from barnabas.client.consumer.decoding import decode_chunk, decode_columns
from barnabas.client.consumer.engine import ConsumerEngine
from barnabas.client.consumer.fetcher import Chunk
from barnabas.client.consumer.rebalancing import Rebalancing
from barnabas.client.consumer.shells import Shell
from barnabas.errors import ClosedError, CorruptBatchError, ErrorCode, KafkaError
from barnabas.records import Record

if TYPE_CHECKING:
    import pyarrow

    from barnabas.records.arrow import ArrowReader

FOREVER_S = float("inf")


class Reading:
    """Hands out what was fetched.

    :param cursors: one per reader; the first is that of a consumer without message streams.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        cluster: Cluster,
        engine: ConsumerEngine,
        rebalancing: Rebalancing,
        shell: Shell,
        cursors: list[Cursor],
    ) -> None:
        self.stopped: ClosedError | None = None
        """Why nothing can be read any more."""
        self.waiting = 0
        """How many readers ask for records just now."""
        self._config = config
        self._cluster = cluster
        self._clock = cluster.clock
        self._engine = engine
        self._rebalancing = rebalancing
        self._shell = shell
        self._guard = shell.guard
        self._cursors = cursors
        self._cursor = cursors[0]
        self._columns: ArrowReader | None = None
        self._last_poll_s = self._clock.monotonic()
        self._last_progress: tuple[int, ...] = ()

    # --- whether the application lives ------------------------------------------------------------------

    def polled(self) -> None:
        """The application has asked for something."""
        self._last_poll_s = self._clock.monotonic()

    def alive(self) -> bool:
        """Whether the application has asked for records within `max_poll_interval_ms`."""
        progress = tuple(cursor.left for cursor in self._cursors)
        if self.waiting or progress != self._last_progress:
            self._last_progress = progress
            self.polled()
        return self._clock.monotonic() - self._last_poll_s <= self._config.max_poll_interval_ms / 1000

    # --- the ways of reading ----------------------------------------------------------------------------

    async def next_slice(self, cursor: Cursor) -> Iterator[Record]:
        """Wait for records, and return an iterator over a stretch of them."""
        await self._shell.give_way()
        with self._guard:
            cursor.finish()
            if cursor.has_records and self.stopped is None and not self._rebalancing.due:
                self.polled()
                return cursor.take_iterator(self._config.max_poll_records)
        while not await self._ask(cursor, FOREVER_S, lambda: self._load(cursor)):
            pass
        with self._guard:
            return cursor.take_iterator(self._config.max_poll_records)

    async def take_list(self, records_max: int, timeout_s: float) -> list[Record]:
        """Wait for records, and return what is at hand."""
        deadline_s = self._clock.monotonic() + timeout_s
        await self._shell.give_way()
        with self._guard:
            self._cursor.finish()
        if not await self._ask(self._cursor, deadline_s, lambda: self._load(self._cursor)):
            return []
        return self._list_at_hand(records_max)

    def _list_at_hand(self, records_max: int) -> list[Record]:
        records: list[Record] = []
        while len(records) < records_max:
            with self._guard:
                records += self._cursor.take_list(records_max - len(records))
            try:
                if len(records) >= records_max or not self._load(self._cursor):
                    break
            except CorruptBatchError:
                break  # the next poll meets it again, with nothing else to return
        return records

    async def take_columns(self, records_max: int, timeout_s: float) -> pyarrow.RecordBatch:
        """Wait for records, and return what is at hand as columns.

        :raises ConfigurationError: pyarrow is not installed.
        """
        deadline_s = self._clock.monotonic() + timeout_s
        if self._columns is None:
            from barnabas.records.arrow import ArrowReader  # noqa: PLC0415  not every program reads columns

            self._columns = ArrowReader()
        columns = self._columns
        await self._shell.give_way()
        with self._guard:
            self._cursor.finish()
        await self._ask(self._cursor, deadline_s, lambda: self._fill(columns, records_max))
        return columns.finish()

    # --- waiting ----------------------------------------------------------------------------------------

    async def _ask(self, cursor: Cursor, deadline_s: float, get: Callable[[], bool]) -> bool:
        """Wait until `get` succeeds; returns False at the deadline. The application counts as alive meanwhile."""
        with self._guard:
            self.waiting += 1
        try:
            while True:
                if self.stopped is not None:
                    raise self.stopped
                await self._rebalancing.look_after(deadline_s)
                if get():
                    return True
                remaining_s = deadline_s - self._clock.monotonic()
                if remaining_s <= 0:
                    return False
                with self._guard:
                    if not self._something_new(cursor):
                        await self._shell.wait_for_news(None if remaining_s == FOREVER_S else remaining_s)
        finally:
            with self._guard:
                self.waiting -= 1
            self.polled()

    def _something_new(self, cursor: Cursor) -> bool:
        """Return, under the guard, whether there is a reason not to wait. Raises what must be told."""
        self.raise_what_must_be_told()
        return (
            self.stopped is not None
            or self._rebalancing.due
            or cursor.has_rest
            or self._engine.fetcher.has_chunk(cursor.accepts)
        )

    def raise_what_must_be_told(self) -> None:
        """Raise, under the guard, what the application has to know before it waits any longer."""
        error = self._engine.fetcher.take_error()
        if error is not None:
            self._shell.soon(self._engine.kick)
            raise error
        nowhere = self._engine.subscription.nowhere()
        if nowhere:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{nowhere[0]} has no offset to start from: none was committed, or it is not there any more, and "
                "auto_offset_reset is 'none'; seek, or set it to 'earliest' or 'latest'",
            )
        unreachable = self._cluster.unreachable
        patience_s = self._config.default_api_timeout_ms / 1000
        if unreachable is not None and self._clock.monotonic() - unreachable[0] > patience_s:
            raise unreachable[1]

    def check_while_joining(self) -> None:
        """Raise what ends the wait for the other members of the group."""
        if self.stopped is not None:
            raise self.stopped
        with self._guard:
            self.raise_what_must_be_told()

    # --- what is at hand --------------------------------------------------------------------------------

    def _load(self, cursor: Cursor) -> bool:
        """Make sure that `cursor` has records, if some are at hand; returns whether it has."""
        with self._guard:
            if cursor.has_records:
                return True
        while True:
            taken = self._take_chunk(cursor)
            if taken is None:
                return False
            chunk, position = taken
            records, whole, damage = decode_chunk(chunk, position, check_crc=self._config.check_crcs)
            with self._guard:
                if not self._engine.fetcher.holds(chunk):
                    continue
                if damage is not None:
                    self._fetch_again_from(chunk, whole.next_offset)
                    whole.version = chunk.state.version
                cursor.load(whole, records)
            if records:
                return True
            if damage is not None:
                raise _damaged(chunk, whole.next_offset, damage)

    def _fill(self, columns: ArrowReader, records_max: int) -> bool:
        """Add what is at hand to `columns`, up to `records_max` records; returns whether it has some."""
        cursor = self._cursor
        while len(columns) < records_max:
            taken = self._take_chunk(cursor)
            if taken is None:
                break
            chunk, position = taken
            next_offset, rest, damage = decode_columns(
                chunk, columns, position, records_max - len(columns), check_crc=self._config.check_crcs
            )
            with self._guard:
                # After a seek meanwhile these records count as handed out before it.
                if self._engine.fetcher.holds(chunk):
                    if damage is not None:
                        self._fetch_again_from(chunk, next_offset)
                    cursor.handed_out(chunk, next_offset, rest)
            if damage is not None and not len(columns):
                raise _damaged(chunk, next_offset, damage)
            if damage is not None or rest is not None:
                break  # damage the next poll meets again, with nothing else to return; or the columns are full
        return len(columns) > 0

    def _take_chunk(self, cursor: Cursor) -> tuple[Chunk, int] | None:
        """Return what to decode next, and the offset to begin at."""
        with self._guard:
            chunk = cursor.take_rest() or self._engine.fetcher.take(cursor.accepts)
            position = None if chunk is None else chunk.state.position
            hungry, self._engine.fetcher.hungry = self._engine.fetcher.hungry, False
        if hungry:
            self._shell.soon(self._engine.kick)
        if chunk is None:
            return None
        assert position is not None
        return chunk, position

    def _fetch_again_from(self, chunk: Chunk, offset: int) -> None:
        """What came after damage is not to be handed out before it: fetch that again. Under the guard."""
        self._engine.fetcher.refetch_from(chunk.state, offset)
        self._shell.soon(self._engine.kick)


def _damaged(chunk: Chunk, offset: int, damage: CorruptBatchError) -> CorruptBatchError:
    error = CorruptBatchError(f"{chunk.state.tp} at offset {offset}: {damage}; seek past it to go on")
    error.__cause__ = damage
    return error
