"""`make suites` clones the suites of other projects once, and keeps no half of a clone."""

from __future__ import annotations

import importlib
import subprocess
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture
def suites(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The program of `make suites`, which imports other programs of tools/ from its folder."""
    monkeypatch.syspath_prepend(Path(__file__).parents[3] / "tools")
    module = importlib.import_module("suites")
    monkeypatch.setattr(module, "CACHE_FOLDER", tmp_path / "cache")
    return module


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A repository with the tag v1 and a later commit."""
    folder = tmp_path / "source"
    folder.mkdir()
    _git(folder, "init", "--quiet")
    for text, *tag in (["one", "v1"], ["two"]):
        (folder / "file").write_text(text)
        _git(folder, "add", "file")
        _git(folder, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "-m", text)
        for name in tag:
            _git(folder, "tag", name)
    return folder


def test_clone_has_the_revision_and_is_kept(source: Path, suites: ModuleType) -> None:
    suite = suites.Suite(source=str(source), revision="v1", prepare="", run="")
    checkout = suites.clone("project", suite)
    assert (checkout / "file").read_text() == "one"
    (checkout / "built").touch()
    assert suites.clone("project", suite) == checkout
    assert (checkout / "built").exists()


def test_clone_without_the_revision_leaves_nothing(tmp_path: Path, source: Path, suites: ModuleType) -> None:
    suite = suites.Suite(source=str(source), revision="v9", prepare="", run="")
    with pytest.raises(subprocess.CalledProcessError):
        suites.clone("project", suite)
    assert not list((tmp_path / "cache").iterdir())


def _git(folder: Path, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True)
