"""The Java programs of `bench.clients`, compiled once into the cache folder."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from bench.downloads import UnavailableError, cache_folder
from bench.drivers.driver import ProgramDriver

SOURCES = Path(__file__).resolve().parents[1] / "clients"
COMPILE_LIMIT_S = 120


class JavaProgram(ProgramDriver):
    """A Java program in one source file.

    :param class_name: the name of the class and of its file.
    :param java: returns the `java` to use.
    :param class_path: returns the class path of its libraries.
    """

    def __init__(
        self,
        name: str,
        protocol: Literal["kafka", "amqp", "jms"],
        class_name: str,
        java: Callable[[], str],
        class_path: Callable[[], str],
        settings: str = "",
    ) -> None:
        super().__init__(name, protocol, (), settings=settings)
        self._class_name = class_name
        self._java = java
        self._class_path = class_path

    def check(self) -> None:
        self.program()

    def program(self) -> list[str]:
        libraries = self._class_path()
        classes = compiled(SOURCES / f"{self._class_name}.java", self._java(), libraries)
        return [self._java(), "-cp", f"{classes}:{libraries}", self._class_name]


def compiled(source: Path, java: str, class_path: str) -> Path:
    """Return the folder with the classes of a source file. Compile them if they are missing.

    :raises UnavailableError: if there is no compiler next to this `java`, or if the compilation fails.
    """
    key = hashlib.sha256(source.read_bytes() + java.encode() + class_path.encode()).hexdigest()[:12]
    folder = cache_folder() / f"{source.stem}-{key}"
    if not folder.exists():
        compiler = Path(java).resolve().with_name("javac")
        if not compiler.exists():
            raise UnavailableError(f"no Java compiler next to {java} (a JDK is needed, not a JRE)")
        command = [str(compiler), "-nowarn", "-cp", class_path, "-d", str(folder), str(source)]
        result = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_LIMIT_S, check=False)
        if result.returncode:
            raise UnavailableError(f"{source.name} does not compile: {result.stderr.strip()[:300]}")
    return folder
