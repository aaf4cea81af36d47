"""The parts of the build that pyproject.toml cannot describe: compiled modules, and a description with absolute links.

The record codec and the scan over batch headers are compiled. Where there is no C compiler they are left out
(`optional`), and their equivalents in Python do the work; `barnabas --version` prints the codec in use. With
BARNABAS_BUILD=pure, nothing is compiled, for a wheel that works everywhere.
"""

import os
import re
import sys
import tomllib
from pathlib import Path

from setuptools import Extension, setup

RECORDS = "src/barnabas/records"
# Older compilers only warn: without these options, the modules would be compiled there, and left out elsewhere.
ERRORS_SINCE_GCC_14 = [f"-Werror={name}" for name in ("incompatible-pointer-types", "int-conversion", "implicit-int")]
PARTS = sorted(str(path) for path in Path(RECORDS).glob("*_parts/*.pxi"))
# Cython's types are static by default. Since Python 3.14, static types have no annotations, and Polars needs those of
# records to name columns. With type specs, the types are made at run time and have annotations.
MACROS = [("CYTHON_USE_TYPE_SPECS", "1")] if sys.version_info >= (3, 14) else []
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|#)([^)\s]+)\)")


def description(text, source, version):
    """Return a page of docs/ without relative links, which a package index cannot follow.

    :param source: The address of the repository. Without it, links become their text, and pictures are left out.
    """

    def replaced(found):
        picture, words, place = found.groups()
        if not source:
            return "" if picture else words
        path, _, anchor = place.partition("#")
        path = os.path.normpath(f"docs/{path}")
        kind = "raw" if picture else "blob"
        return f"{picture}[{words}]({source}/{kind}/v{version}/{path}{'#' if anchor else ''}{anchor})"

    return LINK.sub(replaced, text)


if __name__ == "__main__":
    project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
    source = project.get("urls", {}).get("Source", "").rstrip("/")
    setup(
        long_description=description(Path("docs/package.md").read_text(encoding="utf-8"), source, project["version"]),
        long_description_content_type="text/markdown",
        ext_modules=[]
        if os.environ.get("BARNABAS_BUILD") == "pure"
        else [
            Extension(
                f"barnabas.records.{name}",
                [f"{RECORDS}/{name}.pyx"],
                depends=PARTS,
                define_macros=MACROS,
                extra_compile_args=["-O3", *ERRORS_SINCE_GCC_14],
                optional=True,
            )
            for name in ("codec_compiled", "scan_compiled", "compaction_compiled")
        ],
    )
