"""Finds out where to go on with a partition: from the target's log, before the first batch and after each failure."""

from __future__ import annotations

import asyncio

from barnabas.clock import Clock
from barnabas.errors import BarnabasError
from barnabas.mirror.errors import MirrorError
from barnabas.mirror.events import Told
from barnabas.mirror.ledger import PartitionMark
from barnabas.mirror.ledger_topic import LedgerTopic
from barnabas.mirror.link import Link
from barnabas.mirror.offset_map import OffsetMap
from barnabas.mirror.side import Side
from barnabas.mirror.source_reading import OnStopped
from barnabas.mirror.tail import Tail
from barnabas.records.header import BatchHeader, iter_headers

SCAN_BYTES = 4 * 1024 * 1024
AT_ONCE = 16
"""So many partitions are looked at at the same time."""


class Placing:
    """Looks after what needs attention.

    :param ledger: of the target.
    """

    def __init__(
        self, source: Side, target: Side, ledger: LedgerTopic, clock: Clock, told: Told, on_stopped: OnStopped
    ) -> None:
        self._source = source
        self._target = target
        self._ledger = ledger
        self._clock = clock
        self._told = told
        self._on_stopped = on_stopped
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def look_after(self, link: Link) -> None:
        """Go on until cancelled."""
        backoff = self._target.cluster.backoff
        while True:
            await link.attention.wait()
            if link.tries:
                await asyncio.sleep(backoff.delay_s(link.tries - 1))
            link.attention.clear()
            try:
                async with self._turns:
                    await self._attend(link)
            except MirrorError as error:
                self._on_stopped(link, error)
            except BarnabasError as error:
                link.lost(str(error))

    async def _attend(self, link: Link) -> None:
        if link.stopped is not None:
            return
        if link.is_out_of_range:
            await self._realign(link)
        if not link.copy.is_placed:
            await self.place(link)

    async def place(self, link: Link) -> None:
        """Read the end of the target's log, and go on from there.

        :raises ForeignBatchError: somebody else has written there.
        """
        asked_at_s = self._clock.monotonic()
        tail = await self._tail(link)
        offsets = tail.offsets
        is_new = offsets is None
        if offsets is None:
            start, _ = await self._source.ends(link.source)
            _, end = await self._target.ends(link.target)
            offsets = OffsetMap(start, end)
        begins = self._begin_account(link, offsets)
        if is_new or begins:
            first = PartitionMark(link.target_topic_id.hex(), tail.origin, offsets.runs, link.told_to)
            # So that map and account are exact from their first offset on, also where this process is killed soon.
            await self._ledger.write({PartitionMark.key(*link.target): first.value()})
            link.written = first
        if tail.remark:
            self._told.once(str(link.source), "remark", reason=tail.remark)
        link.copy.place(offsets, tail.origin, asked_at_s, await self._count_from(link, offsets))
        link.counts.replaced += 1

    def _begin_account(self, link: Link, offsets: OffsetMap) -> bool:
        """Have the account go on where it was told last; return whether it begins just now."""
        account = link.copy.account
        mark = self._mark(link)
        if link.told_to is None and mark is not None:
            link.told_to = mark.told_to
        if account is None or account.counted_to is not None:
            return False
        begins = link.told_to is None
        account.begin(offsets.source_end if link.told_to is None else link.told_to)
        link.told_to = account.told_to
        return begins

    async def _count_from(self, link: Link, offsets: OffsetMap) -> int | None:
        """Return from where on the target has what is not counted yet; None: nothing of that is to be counted now.

        While the audit is put off nothing counts. When that ends the partition is looked at again, which must not come
        between this answer and `copy.place`: so nothing is awaited then.
        """
        account = link.copy.account
        if account is None or account.counted_to is None or account.counted_to >= offsets.source_end:
            return None
        if account.topic.is_put_off:
            return None
        start, end = await self._source.ends(link.source)
        if end < offsets.source_end:
            return None  # the source has lost its end, which is told as soon as more is asked for
        return max(start, account.counted_to)

    async def _tail(self, link: Link) -> Tail:
        offsets, origin = self._known(link)
        start, end = await self._target.ends(link.target)
        tail = Tail(link.target, link.copy.lineage, offsets, origin, start, end)
        if start < end:
            header = await self._last_header(link, end)
            if header is None or not tail.last(header):
                await self._scan(link, tail, end)
        tail.end()
        return tail

    def _known(self, link: Link) -> tuple[OffsetMap | None, int | None]:
        """Return the map as it was acknowledged here, or as the ledger has it: a copy that may be changed."""
        if link.copy.offsets is not None:
            return OffsetMap.of(link.copy.offsets.runs), link.copy.origin
        mark = self._mark(link)
        return (None, None) if mark is None else (OffsetMap.of(mark.runs), mark.origin)

    def _mark(self, link: Link) -> PartitionMark | None:
        mark = self._ledger.find(PartitionMark, PartitionMark.key(*link.target))
        return mark if mark is not None and mark.target_topic_id == link.target_topic_id.hex() else None

    async def _last_header(self, link: Link, end: int) -> BatchHeader | None:
        found = None
        data = await self._target.fetch(link.target, end - 1, SCAN_BYTES, end)
        for _, header in iter_headers(data, partial_ok=True):
            if header.next_offset <= end:
                found = header
        return found

    async def _scan(self, link: Link, tail: Tail, end: int) -> None:
        offset = tail.scan_from
        while offset < end:
            reached = offset
            data = await self._target.fetch(link.target, offset, SCAN_BYTES, end)
            for _, header in iter_headers(data, partial_ok=True):
                if header.next_offset <= end and header.base_offset >= offset:
                    tail.take(header)
                reached = max(reached, header.next_offset)
            if reached == offset:
                return  # nothing is left there: compaction took it
            offset = reached

    async def _realign(self, link: Link) -> None:
        """The source has not the offset that was asked for."""
        start, end = await self._source.ends(link.source)
        if link.copy.is_placed:
            if link.copy.expected > end:
                raise MirrorError(
                    f"{link.source}: the source ends at offset {end}, and {link.copy.expected} is to be read next: it"
                    " has lost records that were mirrored; delete the topic in the target to have it mirrored anew"
                )
            await self.place(link)  # another mirror may have gone on before that was gone
            missing = link.copy.skip_to(start)
            if missing:
                link.counts.source_missing += missing
                self._told.once(
                    str(link.source),
                    "remark",
                    reason=f"{missing} offsets before {start} were deleted in the source before they were mirrored",
                )
        link.is_out_of_range = False
