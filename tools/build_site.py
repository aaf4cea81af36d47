"""Build the documentation site with Zensical, and fail on any warning: `python tools/build_site.py`.

`zensical build --strict` fails for broken links. It ignores the warnings of griffe, which reads the docstrings for the
API pages. So this program searches the output for these warnings.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
COLOR = re.compile(r"\x1b\[[0-9;]*m")
WARNING = re.compile(r"griffe: |warning", re.I)


def main() -> int:
    """Build the site. Return 0 if the build succeeds without warnings, or else 1."""
    command = [str(Path(sys.executable).with_name("zensical")), "build", "--strict", "--clean"]
    build = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    output = COLOR.sub("", build.stdout)
    sys.stdout.write(output)
    warned = any(WARNING.search(line) for line in output.splitlines())
    if build.returncode or warned:
        sys.stderr.write("the documentation has warnings; they are printed above\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
