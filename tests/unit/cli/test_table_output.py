"""Tables in a pipe and on a terminal."""

from __future__ import annotations

import pytest

from barnabas.cli.table_output import plain_table, show_json, show_table


def test_plain_table_aligns_text_left_and_numbers_right() -> None:
    table = plain_table(["topic", "lag", "leader"], [["clicks", 5, 0], ["v", 12345, None]])
    assert table.splitlines() == [
        "topic     lag  leader",
        "clicks      5       0",
        "v       12345       -",
    ]


def test_plain_table_without_rows_is_its_head() -> None:
    assert plain_table(["topic", "lag"], []) == "topic  lag"


def test_pipe_gets_plain_text_and_json_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    show_table(["topic"], [["clicks"]])
    show_json({"a": [1, 2]})
    assert capsys.readouterr().out == 'topic\nclicks\n{"a": [1, 2]}\n'


def test_terminal_gets_a_drawn_table_with_text_as_it_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    show_table(["topic", "records"], [["[red]x", 1234567]])
    out = capsys.readouterr().out
    assert "1,234,567" in out
    assert "[red]x" in out
    assert "─" in out


def test_control_characters_do_not_reach_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    show_table(["host"], [["web\x1b[2J\x9b1m\u202e"]])
    assert r"web\x1b[2J\x9b1m\u202e" in capsys.readouterr().out
    assert plain_table(["host"], [["a\nb"]]) == "host\na\\nb"


def test_terminal_that_is_too_narrow_gets_a_line_for_each_cell(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "40")
    names = ["topic", "partition", "leader", "replicas", "in sync", "log end"]
    show_table(names, [["clicks", 0, 1, "1, 2, 3", "1, 2, 3", 123_456_789]])
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines] == names
    assert all(len(line) <= 40 for line in lines)
