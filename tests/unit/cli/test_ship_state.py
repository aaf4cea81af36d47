"""What `ship` remembers between two runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from barnabas.cli.file_marks import FileMark
from barnabas.cli.ship_state import ShipState, ShipStateError, default_state_folder

MARK = FileMark(device=1, inode=2, head_bytes=4, head_sha256="ab", position=10)


def state_of(folder: Path, topic_id: str = "id-1", name: str = "app.log") -> ShipState:
    return ShipState(folder, "logs", topic_id, folder / name)


def test_marks_are_there_in_the_next_run(tmp_path: Path) -> None:
    with state_of(tmp_path) as state:
        state.note(MARK)
        state.note(replace(MARK, inode=3))
        state.note(replace(MARK, position=20))
        state.save()
    with state_of(tmp_path) as state:
        assert state.marks == [replace(MARK, position=20), replace(MARK, inode=3)]


def test_what_is_not_saved_is_sent_again(tmp_path: Path) -> None:
    with state_of(tmp_path) as state:
        state.note(MARK)
    with state_of(tmp_path) as state:
        assert state.marks == []


def test_forgotten_mark_is_gone(tmp_path: Path) -> None:
    with state_of(tmp_path) as state:
        state.note(MARK)
        state.save()
        state.forget(MARK)
        state.save()
    with state_of(tmp_path) as state:
        assert state.marks == []


@pytest.mark.parametrize(("topic_id", "name"), [("id-2", "app.log"), ("id-1", "other.log")])
def test_topic_made_again_and_other_file_begin_anew(tmp_path: Path, topic_id: str, name: str) -> None:
    with state_of(tmp_path) as state:
        state.note(MARK)
        state.save()
    with state_of(tmp_path, topic_id, name) as other:
        assert other.marks == []


def test_two_processes_do_not_ship_one_file(tmp_path: Path) -> None:
    with state_of(tmp_path), pytest.raises(ShipStateError, match="by another process"), state_of(tmp_path):
        pytest.fail("entered a state that is held")
    with state_of(tmp_path):
        assert True, "free again"


@pytest.mark.parametrize("content", ["", "[]", '{"files": [{"inode": 1}]}', "{"])
def test_damaged_state_is_refused_with_what_to_do(tmp_path: Path, content: str) -> None:
    with state_of(tmp_path) as state:
        state.note(MARK)
        state.save()
    (file,) = tmp_path.rglob("*.json")
    file.write_text(content)
    with pytest.raises(ShipStateError, match="delete it to ship"), state_of(tmp_path):
        pytest.fail("entered a damaged state")


def test_folder_follows_xdg_state_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert default_state_folder() == tmp_path / "barnabas" / "ship"


def test_known_files_are_there_in_the_next_run(tmp_path: Path) -> None:
    with state_of(tmp_path) as state:
        assert state.known is None
        state.note_known([MARK])
        state.save()
    with state_of(tmp_path) as state:
        assert state.known == [MARK]
        assert state.saved_at_ns is not None


def test_mark_of_a_copy_replaces_that_of_its_source_and_no_later_one(tmp_path: Path) -> None:
    state = state_of(tmp_path)
    state.note(MARK)
    state.note(replace(MARK, inode=9), replaces=MARK)
    assert state.marks == [replace(MARK, inode=9)]
    newer = replace(MARK, position=3, head_sha256="cd")
    state.note(newer)
    state.note(replace(MARK, inode=10), replaces=MARK)
    assert newer in state.marks
