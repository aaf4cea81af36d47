"""An audit at scale: what is done to the log between the audits."""

from __future__ import annotations

from pathlib import Path

from barnabas.records import BatchBuilder
from barnabas.records.header import iter_headers, stamp
from bench.audit_scale import TOPIC, Figure, Victim, injure, table_lines


def test_one_batch_is_lost_another_one_is_there_twice_and_offsets_have_no_gap(tmp_path: Path) -> None:
    folder = tmp_path / f"{TOPIC}-0"
    folder.mkdir()
    log = bytearray()
    for sequence in range(5):
        builder = BatchBuilder()
        builder.append(1, None, b"x")
        batch = builder.build(7, 0, sequence)
        stamp(batch, 0, sequence, 3)
        log += batch
    path = folder / "00000000000000000000.log"
    path.write_bytes(log)
    (folder / "00000000000000000000.index").touch()
    injure(tmp_path, Victim(0, 1), Victim(0, 3))
    headers = [header for _position, header in iter_headers(path.read_bytes())]
    assert [header.base_sequence for header in headers] == [0, 2, 3, 3, 4]
    assert [header.base_offset for header in headers] == [0, 1, 2, 3, 4]
    assert {header.leader_epoch for header in headers} == {3}
    assert [each.name for each in folder.iterdir()] == [path.name]


def test_figures_are_told_with_what_came_of_them() -> None:
    assert table_lines([Figure("barnabas audit", 2_000_000, 0.5, 0.25, 104.4, "late 1")])[2:] == [
        "| barnabas audit | 2,000,000 | 0.50 | 4,000,000 | 0.25 | 104 | late 1 |"
    ]
