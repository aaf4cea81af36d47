"""The two sides of a comparison: an older commit and the checkout, both installed in the same way.

pip builds each side from an export of its files, and installs it without dependencies into the cache directory. Both
sides run with the Python and the dependencies of the checkout; PYTHONPATH selects the side. The name of an installation
is a hash of the source files: so a commit that changes only tests needs no new installation.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from bench.arena import fresh_folder, remove_leftovers
from bench.processes import ClientError, run_client
from bench.progress import Progress

ROOT = Path(__file__).resolve().parents[2]
BUILT_FROM = ("src", "pyproject.toml", "setup.py", "MANIFEST.in")
CHECKOUT = "checkout"
"""The title of the side that is built from the working tree."""
KEPT = 8
"""The maximum number of installations in the cache."""
MARK = "installed-by-bench-compare"
SITE = "site"
INSTALL_LIMIT_S = 900.0
COMMAND_LIMIT_S = 60.0


class ComparisonError(Exception):
    """The comparison cannot start. The text is one line."""


@dataclass(slots=True)
class Side:
    """An installation of Barnabas.

    :param title: `base` or `checkout`.
    :param label: the commit, and a mark for uncommitted changes.
    :param site: the directory for PYTHONPATH.
    """

    title: str
    label: str
    site: Path
    _helps: dict[str, str | None] = field(default_factory=dict, repr=False)

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables that make Python import this side."""
        return {"PYTHONPATH": str(self.site)}

    def command(self, arguments: Sequence[str]) -> list[str]:
        """Return the command that runs `barnabas` of this side."""
        return [*self._python(), "-m", "barnabas.cli.main", *arguments]

    def missing_from(self, arguments: Sequence[str]) -> str | None:
        """Return the first command or option in the arguments that this side does not have; None if it has all."""
        words = [word for word in arguments[:2] if not word.startswith("-")]
        shown = self._help(words)
        if shown is None:
            return f"`barnabas {' '.join(words)}`"
        options = [word for word in arguments if word.startswith("--")]
        lacking = (option for option in options if not re.search(rf"{re.escape(option)}(?![\w-])", shown))
        return next((f"{option} of `barnabas {' '.join(words)}`" for option in lacking), None)

    @property
    def is_compiled(self) -> bool:
        """True if the record codec is compiled. Without a C compiler, only the pure Python codec is installed."""
        return any(self.site.glob("barnabas/records/*_compiled*.so"))

    def require_import(self) -> None:
        """Check that Python imports Barnabas from this side.

        :raises ComparisonError: if Python imports another installation, or none.
        """
        program = "import barnabas.cli.main; print(barnabas.__file__)"
        try:
            place = Path(run_client([*self._python(), "-c", program], COMMAND_LIMIT_S).output.strip())
        except ClientError as error:
            raise ComparisonError(f"{self.title} {self.label} does not run: {error}") from None
        if not place.is_relative_to(self.site):
            raise ComparisonError(f"{self.title} {self.label}: Python imports {place.parent} instead of {self.site}")

    def _help(self, words: Sequence[str]) -> str | None:
        name = " ".join(words)
        if name not in self._helps:
            try:
                self._helps[name] = run_client(self.command([*words, "--help"]), COMMAND_LIMIT_S).output
            except ClientError:
                self._helps[name] = None
        return self._helps[name]

    def _python(self) -> list[str]:
        return ["env", *(f"{name}={value}" for name, value in self.environment.items()), sys.executable]


class Repository:
    """The files of the checkout and of commits.

    :raises ComparisonError: if the folder is not in a git repository.
    """

    def __init__(self, root: Path = ROOT) -> None:
        self.root = root
        self.git("rev-parse", "--git-dir")

    def commit(self, name: str) -> str:
        """Return the hash of a commit.

        :raises ComparisonError: if the commit does not exist.
        """
        if not name or name.startswith("-"):
            raise ComparisonError("pass the commit to compare with: make compare BASE=<commit>")
        try:
            return self.git("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
        except ComparisonError:
            raise ComparisonError(f"unknown commit: {name}") from None

    def label(self, commit: str) -> str:
        """Return the short hash of a commit."""
        return self.git("rev-parse", "--short", commit)

    def git(self, *arguments: str, environment: Mapping[str, str] | None = None) -> str:
        """Run git. Return its output.

        :raises ComparisonError: if git fails.
        """
        command = ["git", "-C", str(self.root), *arguments]
        variables = {**os.environ, **(environment or {})}
        try:
            done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
        except OSError as error:
            raise ComparisonError(f"cannot run git: {error.strerror}") from None
        if done.returncode:
            raise ComparisonError(f"git {arguments[0]} failed: {' '.join(done.stderr.split())[:300]}")
        return done.stdout.strip()


class Export:
    """An export of git trees with an index and an object store in another folder, so that the repository stays
    unchanged.

    :param folder: an empty folder.
    """

    def __init__(self, repository: Repository, folder: Path) -> None:
        self._repository = repository
        objects = folder / "objects"
        objects.mkdir()
        own = (repository.root / repository.git("rev-parse", "--git-path", "objects")).resolve()
        self._environment = {
            "GIT_INDEX_FILE": str(folder / "index"),
            "GIT_OBJECT_DIRECTORY": str(objects),
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": str(own),
        }

    def tree_of_checkout(self) -> str:
        """Return the tree of HEAD with the uncommitted changes of the source files, including new files."""
        self._git("read-tree", "HEAD")
        there = [name for name in BUILT_FROM if (self._repository.root / name).exists()]
        self._git("add", "--all", "--", *there)
        return self._git("write-tree")

    def content_of(self, tree: str) -> str:
        """Return a hash of the source files of a tree and of this Python's version."""
        files = self._git("ls-tree", tree, "--", *BUILT_FROM)
        python = f"{platform.python_version()} {sys.implementation.cache_tag} {platform.machine()}"
        return hashlib.sha256(f"{files}\n{python}".encode()).hexdigest()[:16]

    def write(self, tree: str, folder: Path) -> None:
        """Write the files of a tree to a folder."""
        self._git("read-tree", tree)
        self._git("checkout-index", "--all", f"--prefix={folder}/")

    def _git(self, *arguments: str) -> str:
        return self._repository.git(*arguments, environment=self._environment)


class Installations:
    """The installations in the cache directory. At most `KEPT` installations are kept; older ones are removed unless a
    process uses them.

    :param folder: the cache folder, which may contain other files.
    """

    def __init__(self, folder: Path, kept: int = KEPT) -> None:
        self._folder = folder
        self._kept = kept
        self._in_use = ExitStack()
        folder.mkdir(parents=True, exist_ok=True)
        remove_leftovers(folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._in_use.close()

    def get(self, name: str, install: Callable[[Path], None]) -> Path:
        """Return the PYTHONPATH directory of an installation, and protect the installation from removal until this
        program ends.

        :param install: installs into a directory; called only if the installation is not in the cache.
        """
        place = self._folder / name
        if not (place / MARK).exists():
            with fresh_folder(self._folder) as scratch:
                made = scratch / name
                made.mkdir()
                install(made / SITE)
                (made / MARK).touch()
                with contextlib.suppress(OSError):  # another comparison has just installed the same files
                    made.rename(place)
        mark = self._in_use.enter_context((place / MARK).open("ab"))
        fcntl.flock(mark, fcntl.LOCK_SH)
        os.utime(place / MARK)
        self._trim()
        return place / SITE

    def _trim(self) -> None:
        marks = sorted(self._folder.glob(f"*/{MARK}"), key=lambda mark: mark.stat().st_mtime_ns, reverse=True)
        for mark in marks[self._kept :]:
            with mark.open("ab") as held, contextlib.suppress(BlockingIOError):
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(mark.parent, ignore_errors=True)


@contextmanager
def both_sides(base: str, cache: Path, progress: Progress) -> Iterator[tuple[Side, Side]]:
    """Yield the installed sides: base and checkout.

    :param base: the name of a commit.
    :raises ComparisonError: if the commit does not exist, or if a side cannot be installed or does not run.
    """
    repository = Repository()
    commit = repository.commit(base)
    with Installations(cache) as installations, fresh_folder(cache) as scratch:
        export = Export(repository, scratch)

        def installed(title: str, label: str, tree: str) -> Side:
            def install(into: Path) -> None:
                progress.say(f"installing {title} {label}; a minute or two, once")
                export.write(tree, scratch / title)
                _install(f"{title} {label}", scratch / title, into)

            return Side(title, label, installations.get(export.content_of(tree), install))

        tree = export.tree_of_checkout()
        changes = "" if tree == repository.git("rev-parse", "HEAD^{tree}") else " with changes"
        older = installed("base", repository.label(commit), commit)
        newer = installed(CHECKOUT, repository.label("HEAD") + changes, tree)
        for side in (older, newer):
            side.require_import()
        if older.is_compiled != newer.is_compiled:
            pure = newer if older.is_compiled else older
            raise ComparisonError(
                f"the codec of {pure.title} is not compiled: install a C compiler, and remove {pure.site.parent}"
            )
        yield older, newer


def _install(name: str, source: Path, into: Path) -> None:
    quiet = ["--quiet", "--disable-pip-version-check", "--no-input"]
    command = [sys.executable, "-m", "pip", "install", *quiet, "--no-deps", "--target", str(into), str(source)]
    try:
        run_client(command, INSTALL_LIMIT_S)
    except ClientError as error:
        raise ComparisonError(f"cannot install {name}: {error}") from None
