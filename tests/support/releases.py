"""The last release of Barnabas, beside which this one is tried: the newest tag `v...`, or what is asked for."""

from __future__ import annotations

import io
import os
import subprocess
import zipfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ASKED_FOR = "LAST_RELEASE"
"""The environment's variable that names another commit, for example HEAD~30."""

COMMITS = ("c66d475f02dd0d817b914f41ad608ee5e0833f89",)
"""The commits of the releases, v0.1.0 first: a clone may be without the tags."""


def last_release(clone: Path = ROOT, commits: Sequence[str] = COMMITS) -> str | None:
    """Return the newest release behind the work in a clone, a tag or a commit; None: there is none, or no git."""
    if asked := os.environ.get(ASKED_FOR):
        return asked
    tag = _git(clone, "describe", "--tags", "--abbrev=0", "--match=v[0-9]*", "HEAD^")
    return tag or next((commit for commit in reversed(commits) if _is_behind(clone, commit)), None)


def unpack(release: str, folder: Path, clone: Path = ROOT) -> Path:
    """Put the sources of a release into a folder; return where its packages are. Its codec is that in pure Python."""
    command = ["git", "-C", clone, "archive", "--format=zip", release, "src"]
    with zipfile.ZipFile(io.BytesIO(subprocess.run(command, check=True, capture_output=True).stdout)) as archive:
        archive.extractall(folder)
    return folder / "src"


def _is_behind(clone: Path, commit: str) -> bool:
    return _git(clone, "merge-base", "--is-ancestor", commit, "HEAD^") is not None


def _git(clone: Path, *arguments: str) -> str | None:
    try:
        said = subprocess.run(["git", "-C", clone, *arguments], check=False, capture_output=True, text=True)
    except FileNotFoundError:
        return None
    return said.stdout.strip() if said.returncode == 0 else None
