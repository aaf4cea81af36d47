"""Days of repeated loads with maintenance: what is there stays bounded, and readers never fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.simulated_weeks import simulate

A_LOAD_EACH_SIX_HOURS = ("--commits=48", "--every-s=21600", "--maintain-every-s=172800", "--lines=6")


@pytest.mark.parametrize("table_format", ["iceberg", "delta"])
def test_twelve_days_of_loads_leave_as_many_files_as_ten_and_disturb_no_reader(
    tmp_path: Path, table_format: str
) -> None:
    *measured, reads = simulate(tmp_path, table_format, *A_LOAD_EACH_SIX_HOURS)
    assert [(line["commits"], line["days"]) for line in measured] == [(8 * n, 2 * n) for n in range(1, 7)]
    tenth, twelfth = measured[4], measured[5]
    kinds = ("data_files", "folders") + (("metadata_files",) if table_format == "iceberg" else ())
    for kind in kinds:  # a log of Delta grows to 200 versions: test_bounded_metadata.py
        assert twelfth[kind] <= tenth[kind] + 4, (kind, measured)  # each day keeps a file, and its folder
    assert twelfth["current_files"] <= 12 + 8
    assert len(set(reads) - {"late"}) >= 3
