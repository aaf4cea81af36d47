"""Prepare a release: check everything, build all files, and create the tag. The upload remains.

    .venv/bin/python tools/release.py 0.2.0              what `make release VERSION=0.2.0` runs
    .venv/bin/python tools/release.py 0.2.0 --dry-run    the same without the tag

docs/dev/release.md describes the steps before and after. Nothing is changed if a step fails.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
VERSION = re.compile(r"\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?")
CHECKS = ("make", "check", "test")
BUILD = (sys.executable, "tools/wheels.py")


def problems(root: Path, version: str) -> Iterator[str]:
    """Yield each reason why the checkout is not this version, with the remedy."""
    if not VERSION.fullmatch(version):
        yield f"{version!r} is no version such as 1.2.0 or 1.2.0rc1"
        return
    if git(root, "status", "--porcelain"):
        yield "the working tree has changes; commit them, or remove them"
    if git(root, "tag", "--list", f"v{version}"):
        yield f"the tag v{version} exists; choose another version, or delete the tag"
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    if project["version"] != version:
        yield f"pyproject.toml has the version {project['version']}; set it to {version}"
    package = (root / "src" / "barnabas" / "__init__.py").read_text(encoding="utf-8")
    if f'__version__ = "{version}"' not in package:
        yield f"src/barnabas/__init__.py has another __version__; set it to {version}"
    if not project.get("urls", {}).get("Source"):
        yield "pyproject.toml has no Source in [project.urls]; without it, the page on the package index has no links"
    if not notes(root, version):
        yield f"CHANGELOG.md has no text below '## [{version}] - <date>'; rename the section Unreleased"
    if re.search(r"^- ", (root / "docs/dev/api/accepted.md").read_text(encoding="utf-8"), re.MULTILINE):
        yield "docs/dev/api/accepted.md has changes; run .venv/bin/python tools/public_api.py --renew"


def notes(root: Path, version: str) -> str:
    """Return the changelog's text about a version; empty if there is none."""
    text = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    heading = rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$"
    parts = re.split(heading, text, maxsplit=1, flags=re.MULTILINE)
    return re.split(r"^## ", parts[1], maxsplit=1, flags=re.MULTILINE)[0].strip() if len(parts) > 1 else ""


def git(root: Path, *arguments: str) -> str:
    """Return the output of git."""
    return subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=True).stdout.strip()


def release(root: Path, version: str, run: Callable[[Sequence[str], Path], None], *, dry_run: bool) -> list[str]:
    """Do all steps; return the commands that remain.

    :param run: runs a command in a folder, and raises CalledProcessError if it fails.
    :raises SystemExit: the checkout is not this version.
    """
    found = list(problems(root, version))
    if found:
        raise SystemExit("\n".join(f"release: {each}" for each in found))
    run(CHECKS, root)
    shutil.rmtree(root / "dist", ignore_errors=True)
    run(BUILD, root)
    if git(root, "status", "--porcelain"):
        raise SystemExit("release: the checks or the build changed files of the working tree; see `git status`")
    if not dry_run:
        run(
            ("git", "tag", "--annotate", f"v{version}", "--message", f"Barnabas {version}\n\n{notes(root, version)}"),
            root,
        )
    return [f"git push origin HEAD v{version}", ".venv/bin/python -m twine upload dist/*"]


def run_command(command: Sequence[str], folder: Path) -> None:
    """Print a command and run it.

    :raises CalledProcessError: it fails.
    """
    sys.stdout.write(f"release: {' '.join(command[:4])}\n")
    sys.stdout.flush()
    subprocess.run(command, cwd=folder, check=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Prepare the release; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("version")
    parser.add_argument("--dry-run", action="store_true", help="create no tag")
    given = parser.parse_args(arguments)
    try:
        remaining = release(ROOT, given.version, run_command, dry_run=given.dry_run)
    except subprocess.CalledProcessError as error:
        sys.stderr.write(f"release: failed with exit code {error.returncode}: {' '.join(error.cmd)}\n")
        return 1
    lines = "".join(f"    {line}\n" for line in remaining)
    sys.stdout.write(f"release: dist/ has all files of {given.version}. The next commands publish it:\n\n{lines}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
