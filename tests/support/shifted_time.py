"""A wall clock that a test moves: a library that is loaded before others adds a shift to the time of the system.

delta-rs and pyiceberg read the time of the system themselves, so a test of days and weeks needs more than a `Clock`.
The shift is a number of nanoseconds in a file that the processes map into memory. The monotonic time stays as it is.
"""

from __future__ import annotations

import mmap
import os
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

FILE_VARIABLE = "SHIFTED_TIME_FILE"
SOURCE = """
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile long long *shift;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("SHIFTED_TIME_FILE");
    int file = path ? open(path, O_RDONLY) : -1;
    void *mapped = file < 0 ? MAP_FAILED : mmap(NULL, 8, PROT_READ, MAP_SHARED, file, 0);
    if (mapped != MAP_FAILED) shift = mapped;
    if (file >= 0) close(file);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = syscall(SYS_clock_gettime, clock, now);
    if (failed || clock != CLOCK_REALTIME || !shift) return failed;
    long long ns = now->tv_sec * 1000000000LL + now->tv_nsec + *shift;
    now->tv_sec = ns / 1000000000LL;
    now->tv_nsec = ns % 1000000000LL;
    return 0;
}

int gettimeofday(struct timeval *now, void *zone) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *result) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (result) *result = exact.tv_sec;
    return exact.tv_sec;
}
"""


def environment_of(folder: Path, shift_s: float) -> dict[str, str]:
    """Return the environment of a process whose time is shifted; its `SystemTime` moves the time on.

    :param folder: A folder for the library and the file with the shift.
    :param shift_s: The shift at the start, in seconds.
    """
    compiler = shutil.which("cc") or pytest.skip("cc is not installed")
    library, source, file = folder / "shifted_time.so", folder / "shifted_time.c", folder / "shift"
    source.write_text(SOURCE, encoding="utf-8")
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    file.write_bytes(struct.pack("=q", round(shift_s * 1e9)))
    return {**os.environ, "LD_PRELOAD": str(library), FILE_VARIABLE: str(file)}


class SystemTime:
    """The shift of the time of this process, and of those that have the same file."""

    def __init__(self, file: Path) -> None:
        with file.open("r+b") as opened:
            self._mapped = mmap.mmap(opened.fileno(), 8)

    @property
    def shift_s(self) -> float:
        (shift_ns,) = struct.unpack_from("=q", self._mapped)
        return float(shift_ns) / 1e9

    def advance(self, seconds: float) -> None:
        """Move the wall time of the processes."""
        struct.pack_into("=q", self._mapped, 0, round((self.shift_s + seconds) * 1e9))
