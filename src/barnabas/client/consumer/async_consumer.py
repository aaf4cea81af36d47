"""The consumer for programs on an event loop: the same as `Consumer`, without a thread; batches come first."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from barnabas.client.config import ConsumerConfig, make_config
from barnabas.client.consumer.application import ApplicationSide, Committable
from barnabas.client.consumer.consumer import COLUMNS_MAX
from barnabas.client.consumer.engine import ConsumerEngine
from barnabas.client.consumer.frames import import_for_frames, to_pandas, to_polars
from barnabas.client.consumer.shells import Listener, LoopShell
from barnabas.clock import SYSTEM_CLOCK
from barnabas.errors import ClosedError
from barnabas.model import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from barnabas.records import Record

if TYPE_CHECKING:
    import pandas
    import polars  # type: ignore[import-not-found, unused-ignore]
    import pyarrow


class AsyncConsumer:
    """Reads records of topics on the event loop of the application, alone or as a member of a group.

    Arguments, settings, errors and promises are those of `Consumer`; what waits there is awaited here. One task at
    a time may poll or iterate. Heartbeats, commits and fetches run on the same loop: they go on while a handler
    awaits, and stand still while one computes or blocks; a handler that blocks for longer than
    `session_timeout_ms` loses its partitions.

        async with barnabas.AsyncConsumer("localhost:9092", group="ctr") as consumer:
            consumer.subscribe("clicks")
            async for record in consumer:
                ...
    """

    def __init__(
        self,
        bootstrap: str | Iterable[str] | Mapping[str, Any] | None = None,
        *,
        group: str | None = None,
        **settings: Any,
    ) -> None:
        if group is not None:
            settings["group"] = group
        self._config = make_config(ConsumerConfig, bootstrap, settings)
        self._shell = LoopShell()
        self._application = ApplicationSide(self._config, self._shell, SYSTEM_CLOCK)

    @property
    def _engine(self) -> ConsumerEngine:
        return self._application.engine

    async def start(self) -> Self:
        """Begin; entering `async with`, or the first call that waits, does it as well."""
        if not self._shell.runs:
            self._application.check_usable()
            self._shell.runs = True
            await self._application.start()
        return self

    async def _started(self) -> ApplicationSide:
        if not self._shell.runs:
            await self.start()
        return self._application

    # --- what to read -----------------------------------------------------------------------------------

    def subscribe(
        self,
        topics: str | Iterable[str] = (),
        *,
        pattern: str | re.Pattern[str] | None = None,
        on_assign: Listener | None = None,
        on_revoke: Listener | None = None,
        on_lost: Listener | None = None,
    ) -> None:
        """Read these topics from now on; see `Consumer.subscribe`.

        The listeners may be functions or coroutine functions, which are awaited.
        """
        self._application.subscribe(topics, pattern, on_assign=on_assign, on_revoke=on_revoke, on_lost=on_lost)

    def assign(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Read exactly these partitions; see `Consumer.assign`."""
        self._application.assign(partitions)

    def assignment(self) -> set[TopicPartition]:
        """Return the partitions that this consumer reads now."""
        return self._application.assignment()

    async def unsubscribe(self) -> None:
        """Read nothing any more; leave the group, if in one."""
        await (await self._started()).unsubscribe()

    # --- reading ----------------------------------------------------------------------------------------

    async def poll(self, max_records: int = 500, timeout_s: float = 1.0) -> list[Record]:
        """Return the next records, at most `max_records`, or none if none came within `timeout_s`.

        Asking for more says that the records before have been dealt with. Errors are those of `Consumer.poll`.
        """
        return await (await self._started()).reading.take_list(max_records, timeout_s)

    async def poll_arrow(self, max_records: int = COLUMNS_MAX, timeout_s: float = 1.0) -> pyarrow.RecordBatch:
        """Return the next records as columns, none if none came within `timeout_s`; see `Consumer.poll_arrow`."""
        return await (await self._started()).reading.take_columns(max_records, timeout_s)

    async def poll_polars(self, max_records: int = COLUMNS_MAX, timeout_s: float = 1.0) -> polars.DataFrame:
        """Return what `poll_arrow` would as a data frame of polars."""
        import_for_frames("polars")
        return to_polars(await self.poll_arrow(max_records, timeout_s))

    async def poll_pandas(self, max_records: int = COLUMNS_MAX, timeout_s: float = 1.0) -> pandas.DataFrame:
        """Return what `poll_arrow` would as a data frame of pandas."""
        import_for_frames("pandas")
        return to_pandas(await self.poll_arrow(max_records, timeout_s))

    async def batches(self, max_records: int = 500) -> AsyncIterator[list[Record]]:
        """Iterate over lists of records, none of them empty, until the consumer is closed."""
        while True:
            try:
                records = await self.poll(max_records, timeout_s=float("inf"))
            except ClosedError:
                if self._application.closed:
                    return
                raise
            yield records

    async def __aiter__(self) -> AsyncIterator[Record]:
        application = await self._started()
        while True:
            try:
                records = await application.reading.next_slice(application.cursor)
            except ClosedError:
                if application.closed:
                    return
                raise
            for record in records:
                yield record

    # --- positions --------------------------------------------------------------------------------------

    async def position(self, tp: tuple[str, int], timeout_s: float | None = None) -> int:
        """Return the offset of the next record of a partition, looking it up if need be."""
        return await (await self._started()).position(tp, timeout_s)

    def seek(self, tp: tuple[str, int], offset: int) -> None:
        """Go on reading a partition at `offset`: rewind, or skip ahead."""
        self._application.seek(tp, offset)

    def seek_to_beginning(self, *tps: tuple[str, int]) -> None:
        """Go to the first offset of partitions, of all assigned ones if none is named."""
        self._application.seek_by_policy(tps, "earliest")

    def seek_to_end(self, *tps: tuple[str, int]) -> None:
        """Go past the last offset of partitions, of all assigned ones if none is named."""
        self._application.seek_by_policy(tps, "latest")

    def pause(self, *tps: tuple[str, int]) -> None:
        """Hand out no records of these partitions until `resume`; they stay assigned."""
        self._application.set_paused(tps, True)

    def resume(self, *tps: tuple[str, int]) -> None:
        """Hand out records of these partitions again."""
        self._application.set_paused(tps, False)

    # --- offsets ----------------------------------------------------------------------------------------

    async def commit(
        self, offsets: Mapping[TopicPartition, Committable] | None = None, *, timeout_s: float | None = None
    ) -> None:
        """Commit offsets for the group, or everything that was handed out; see `Consumer.commit`."""
        await (await self._started()).commit(offsets, timeout_s)

    async def committed(self, tp: tuple[str, int], timeout_s: float | None = None) -> OffsetAndMetadata | None:
        """Return what the group has committed for a partition, or None."""
        return await (await self._started()).committed(tp, timeout_s)

    async def beginning_offsets(self, tps: Iterable[tuple[str, int]]) -> dict[TopicPartition, int]:
        """Return the first offset of each partition."""
        return await (await self._started()).beginning_offsets(tps)

    async def end_offsets(self, tps: Iterable[tuple[str, int]]) -> dict[TopicPartition, int]:
        """Return the offset after the last record of each partition."""
        return await (await self._started()).end_offsets(tps)

    async def offsets_for_times(
        self, timestamps_ms: Mapping[tuple[str, int], int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return for each partition the first offset with a timestamp of at least the one given, or None."""
        return await (await self._started()).offsets_for_times(timestamps_ms)

    # --- finishing --------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Commit (if auto-commit is on) what was handed out, and leave the group. May be called again.

        Ends the iterations of other tasks.
        """
        await self._application.close(all_done=True)

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # After an exception the record in hand was not dealt with: the group shall see it again.
        await self._application.close(all_done=error is None)

    def __repr__(self) -> str:
        return f"<AsyncConsumer{self._application}>"
