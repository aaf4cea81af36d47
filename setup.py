"""The one thing that pyproject.toml cannot say yet: the record codec and the scan over batch headers are compiled.

Where there is no C compiler they are left out (`optional`), and their twins in Python do the work; `barnabas --version`
says which of the two is in use.
"""

from pathlib import Path

from setuptools import Extension, setup

RECORDS = "src/barnabas/records"
PARTS = sorted(str(path) for path in Path(RECORDS).glob("*_parts/*.pxi"))

setup(
    ext_modules=[
        Extension(
            f"barnabas.records.{name}",
            [f"{RECORDS}/{name}.pyx"],
            depends=PARTS,
            extra_compile_args=["-O3"],
            optional=True,
        )
        for name in ("codec_compiled", "scan_compiled", "compaction_compiled")
    ]
)
