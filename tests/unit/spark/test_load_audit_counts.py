"""What a task counts is what the log's own count says, wherever its ranges are cut and whatever the times are."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from barnabas.audit.account import Account, offsets_of
from barnabas.audit.batch_windows import batches_by_window
from barnabas.audit.stored_log import StoredLog
from barnabas.audit.windows import Tally, tally
from barnabas.model import TopicPartition
from barnabas.records import BatchBuilder
from barnabas.records.arrow import ArrowReader
from barnabas.records.header import SEQUENCE_MAX, stamp
from barnabas.spark.load_audit_counts import LoadAuditCounter

WIDTH_MS = 60_000
WHERE = TopicPartition("clicks", 3)
TIMES_MS = st.sampled_from([-1, 0, 59_999, 60_000, 200_000, 10**15])


@st.composite
def logs(draw: st.DrawFn) -> bytes:
    """Batches of several producers, some without an id, as a log has them."""
    sequences = {7: SEQUENCE_MAX - 3, 8: 0}
    written, offset = b"", 0
    for producer_id in draw(st.lists(st.sampled_from([7, 8, -1]), max_size=8)):
        builder = BatchBuilder()
        for time_ms in draw(st.lists(TIMES_MS, min_size=1, max_size=6)):
            builder.append(time_ms, None, b"x")
        count = builder.count
        sequence = sequences.get(producer_id, -1)
        batch = bytearray(builder.build(producer_id, 0 if producer_id >= 0 else -1, sequence))
        stamp(batch, 0, offset, 0)
        written += batch
        offset += count
        if producer_id >= 0:
            sequences[producer_id] = (sequence + count) & SEQUENCE_MAX
    return written


def taken(log: bytes, begin: int, end: int) -> Account:
    builder, columns = LoadAuditCounter(WIDTH_MS), ArrowReader()
    columns.read(log, *WHERE, min_offset=begin, max_offset=end)
    builder.saw(log)
    builder.add(WHERE, columns.finish())
    return builder.account


@given(logs(), st.integers(0, 50))
def test_account_of_a_log_is_that_of_its_parts_and_what_the_log_holds(log: bytes, cut: int) -> None:
    whole = Account.together([taken(log, 0, cut), taken(log, cut, 10**6)])
    stored, offsets = StoredLog(WIDTH_MS), {}
    stored.on_range = lambda _producer, offset, record_range: offsets.setdefault(record_range.window_ms, []).append(
        tally(offsets_of(3), offset, record_range.records, 0)
    )
    for header, windows in batches_by_window(log, WIDTH_MS):
        stored.add(3, header, windows)
    found = {window_ms: window for _topic, window_ms, window in whole.items()}
    assert found.keys() == stored.counted.keys()
    for window_ms, of_window in stored.counted.items():
        audited = {each: told for each, told in of_window.items() if each.producer_id >= 0}
        assert found[window_ms].counted == audited
        together = Tally()
        for each in offsets[window_ms]:
            together = together.plus(each)
        assert found[window_ms].offsets == {3: together}
