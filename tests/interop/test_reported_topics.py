"""The list of audited topics, read from the events of a real broker."""

from __future__ import annotations

import barnabas
from barnabas.client.audit import event_log
from barnabas.client.audit.event_log import ReportedTopics
from barnabas.client.audit.event_sender import AUDIT_TOPIC
from barnabas.client.range_reader import RangeReader
from tests.support.broker_process import BrokerProcess


def test_each_call_reads_only_new_events(broker: BrokerProcess, monkeypatch: object) -> None:
    ranges: list[tuple[int, int]] = []

    class NotedReader(RangeReader):
        def __init__(self, bootstrap: object, topic: str, partition: int, start: int, end: int) -> None:
            ranges.append((start, end))
            super().__init__(bootstrap, topic, partition, start, end)  # type: ignore[arg-type]

    monkeypatch.setattr(event_log, "RangeReader", NotedReader)  # type: ignore[attr-defined]
    reports = ReportedTopics(broker.bootstrap)
    with barnabas.Admin(broker.bootstrap) as admin:
        assert reports.read(admin) == set()
        for name in ("clicks", "views", "plain"):
            admin.create_topic(name)
        with barnabas.Producer(broker.bootstrap, audit=True) as producer:
            producer.send("clicks", b"a").result()
        assert reports.read(admin) == {"clicks"}
        with barnabas.Producer(broker.bootstrap, audit=True) as producer:
            producer.send("views", b"b").result()
        with barnabas.Producer(broker.bootstrap) as producer:
            for key, value in ((b"no json", b""), (b"7", b""), (b"[7]", b"x"), (b'["absent"]', b"y")):
                producer.send(AUDIT_TOPIC, value, key=key).result()
        assert reports.read(admin) == {"clicks", "views"}
        ends = {end for _start, end in ranges}
        assert ranges == sorted(ranges)
        assert all(start in {0, *ends} for start, _end in ranges)
        ranges.clear()
        assert reports.read(admin) == {"clicks", "views"}
        assert all(start == end for start, end in ranges)
        admin.delete_topic("views")
        assert reports.read(admin) == {"clicks"}
