"""`make release` checks a clone, builds, and tags it; it changes nothing if a step fails."""

from __future__ import annotations

import runpy
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

TOOL = runpy.run_path(str(Path(__file__).parents[3] / "tools" / "release.py"))
release, notes = TOOL["release"], TOOL["notes"]
FILES = {
    "pyproject.toml": '[project]\nversion = "1.2.0"\n[project.urls]\nSource = "https://example.org/barnabas"\n',
    "src/barnabas/__init__.py": '__version__ = "1.2.0"\n',
    "CHANGELOG.md": (
        "# Changelog\n\n## [Unreleased]\n\n## [1.2.0] - 2026-12-01\n\n- A change.\n\n"
        "## [1.1.0] - 2026-11-01\n\n- Old.\n"
    ),
    "docs/dev/api/accepted.md": "# Accepted\n",
    ".gitignore": "dist/\n",
}


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=test", "-c", "user.email=test@example.org", "-c", "commit.gpgsign=false"]
    return subprocess.run(["git", *identity, *arguments], cwd=folder, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    git(tmp_path, "init", "--quiet")
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    git(tmp_path, "config", "user.name", "test")
    git(tmp_path, "config", "user.email", "test@example.org")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "-m", "Barnabas 1.2.0")
    return tmp_path


class Recorder:
    """Runs git, and records all commands. `fails` is the first word of the command that fails."""

    def __init__(self, fails: str = "") -> None:
        self.commands: list[str] = []
        self.fails = fails

    def __call__(self, command: Sequence[str], folder: Path) -> None:
        self.commands.append(" ".join(command[-3:] if "git" not in command[0] else command[:2]))
        if self.fails and self.fails in command:
            raise subprocess.CalledProcessError(1, command)
        if command[0] == "git":
            git(folder, *command[1:])


def test_release_checks_builds_and_tags_in_this_order(clone: Path) -> None:
    run = Recorder()
    remaining = release(clone, "1.2.0", run, dry_run=False)
    assert [command.split()[-1] for command in run.commands] == ["test", "tools/wheels.py", "tag"]
    assert git(clone, "tag", "--list", "--format=%(refname:short) %(contents:subject)") == "v1.2.0 Barnabas 1.2.0\n"
    assert "- A change." in git(clone, "tag", "--list", "--format=%(contents:body)")
    assert remaining == ["git push origin HEAD v1.2.0", ".venv/bin/python -m twine upload dist/*"]


def test_release_removes_files_of_earlier_builds(clone: Path) -> None:
    (clone / "dist").mkdir()
    (clone / "dist" / "barnabas-1.1.0.tar.gz").write_bytes(b"")
    release(clone, "1.2.0", Recorder(), dry_run=True)
    assert not (clone / "dist").exists()


@pytest.mark.parametrize("fails", ["check", "tools/wheels.py"])
def test_release_whose_step_fails_has_no_tag(clone: Path, fails: str) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        release(clone, "1.2.0", Recorder(fails), dry_run=False)
    assert not git(clone, "tag")


def test_dry_run_has_no_tag(clone: Path) -> None:
    release(clone, "1.2.0", Recorder(), dry_run=True)
    assert not git(clone, "tag")


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        (
            "pyproject.toml",
            FILES["pyproject.toml"].replace("1.2.0", "1.2.0.dev0"),
            "pyproject.toml has the version 1.2.0.dev0",
        ),
        ("pyproject.toml", '[project]\nversion = "1.2.0"\n', "has no Source"),
        ("src/barnabas/__init__.py", '__version__ = "1.1.0"\n', "another __version__"),
        ("CHANGELOG.md", "# Changelog\n\n## [Unreleased]\n\n- A change.\n", "CHANGELOG.md has no text"),
        ("CHANGELOG.md", "## [1.2.0] - 2026-12-01\n\n## [1.1.0] - 2026-11-01\n\n- Old.\n", "CHANGELOG.md has no text"),
        ("docs/dev/api/accepted.md", "- A break\n", "accepted.md has changes"),
    ],
)
def test_release_refuses_a_clone_of_another_version(clone: Path, name: str, text: str, problem: str) -> None:
    (clone / name).write_text(text, encoding="utf-8")
    git(clone, "commit", "--quiet", "-a", "-m", "Change")
    run = Recorder()
    with pytest.raises(SystemExit, match=problem):
        release(clone, "1.2.0", run, dry_run=False)
    assert not run.commands


def test_release_refuses_changed_files_existing_tags_and_wrong_versions(clone: Path) -> None:
    git(clone, "tag", "v1.2.0")
    (clone / "new").write_text("", encoding="utf-8")
    with pytest.raises(SystemExit, match=r"working tree has changes(.|\n)*the tag v1\.2\.0 exists"):
        release(clone, "1.2.0", Recorder(), dry_run=False)
    with pytest.raises(SystemExit, match=r"'1\.2' is no version"):
        release(clone, "1.2", Recorder(), dry_run=False)


def test_notes_end_before_the_last_version(clone: Path) -> None:
    assert notes(clone, "1.2.0") == "- A change."
    assert notes(clone, "1.1.0") == "- Old."
