"""The archive of `barnabas debug bundle`: a ZIP file with bounded, redacted texts, and a list of what is missing."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from barnabas.cli.error_messages import explain
from barnabas.cli.redaction import Redactor
from barnabas.errors import BarnabasError

ENTRY_BYTES_MAX = 8 * 1024 * 1024
"""The maximum size of a file in the archive. Longer texts lose their beginning."""
BUNDLE_BYTES_MAX = 64 * 1024 * 1024
"""The maximum size of all files in the archive together, without compression."""
CUT = "[... the beginning is cut ...]\n"


class Bundle:
    """Writes the archive. A context manager: if its block fails, no file remains.

    :param redactor: removes the secrets from all texts.
    :raises FileExistsError: the file exists.
    """

    def __init__(self, path: Path, redactor: Redactor, now_ms: int, bytes_max: int = BUNDLE_BYTES_MAX) -> None:
        self._path = path
        self._redactor = redactor
        self._bytes_left = bytes_max
        self._moment = datetime.fromtimestamp(now_ms / 1000, UTC).timetuple()[:6]
        self.missing: dict[str, str] = {}
        """The reasons for missing content, by name."""
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        self._file = os.fdopen(descriptor, "wb")
        self._archive = zipfile.ZipFile(self._file, "w", zipfile.ZIP_DEFLATED)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        is_whole = False
        try:
            if kind is None:
                self._write("missing.json", json.dumps(self.missing, indent=2))
            self._archive.close()
            is_whole = kind is None
        finally:
            self._file.close()
            if not is_whole:
                self._path.unlink(missing_ok=True)

    def collect(self, name: str, make: Callable[[], Any]) -> Any:
        """Add the result of a function: text as it is, anything else as JSON. If the function fails, note the reason.

        :returns: the result; None if the function failed.
        """
        try:
            found = make()
        except (BarnabasError, OSError, ValueError) as error:
            reason = explain(error) if isinstance(error, BarnabasError | OSError) else str(error)
            self.missing[name] = self._redactor.text(reason)
            return None
        self.add(name, found)
        return found

    def add(self, name: str, content: Any) -> None:
        """Add a file, unless the archive has reached its maximum size."""
        if isinstance(content, str):
            self._write(name, self._redactor.text(content))
        else:
            self._write(name, json.dumps(self._redactor.json(content), indent=2))

    def _write(self, name: str, text: str) -> None:
        data = text.encode("utf-8", "backslashreplace")
        if len(data) > ENTRY_BYTES_MAX:
            data = CUT.encode() + data[-ENTRY_BYTES_MAX:]
        if name != "missing.json":
            if len(data) > self._bytes_left:
                self.missing[name] = "the bundle has reached its maximum size"
                return
            self._bytes_left -= len(data)
        entry = zipfile.ZipInfo(name, self._moment)
        entry.compress_type = zipfile.ZIP_DEFLATED
        entry.external_attr = 0o600 << 16
        self._archive.writestr(entry, data)
