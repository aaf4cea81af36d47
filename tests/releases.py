"""The last release of Barnabas, beside which this one is tried: the newest tag `v...`, or what is asked for."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ASKED_FOR = "LAST_RELEASE"
"""The environment's variable that names another commit, for example HEAD~30."""


def last_release(clone: Path = ROOT) -> str | None:
    """Return the newest tag of a release from which the work in a clone goes on; None: there is none, or no git."""
    if asked := os.environ.get(ASKED_FOR):
        return asked
    return _git(clone, "describe", "--tags", "--abbrev=0", "--match=v[0-9]*", "HEAD^")


def unpack(release: str, folder: Path, clone: Path = ROOT) -> Path:
    """Put the sources of a release into a folder; return where its packages are. Its codec is that in pure Python."""
    archive = subprocess.run(["git", "-C", clone, "archive", release, "src"], check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(folder, filter="data")
    return folder / "src"


def _git(clone: Path, *arguments: str) -> str | None:
    try:
        said = subprocess.run(["git", "-C", clone, *arguments], check=False, capture_output=True, text=True)
    except FileNotFoundError:
        return None
    return said.stdout.strip() if said.returncode == 0 else None
