"""The one thing that pyproject.toml cannot say yet: the record codec and the scan over batch headers are compiled.

Where there is no C compiler they are left out (`optional`), and their twins in Python do the work; `barnabas --version`
says which of the two is in use.
"""

from pathlib import Path

from setuptools import Extension, setup

RECORDS = "src/barnabas/records"
# Older compilers only warn: without these options, the modules would be compiled there, and left out elsewhere.
ERRORS_SINCE_GCC_14 = [f"-Werror={name}" for name in ("incompatible-pointer-types", "int-conversion", "implicit-int")]
PARTS = sorted(str(path) for path in Path(RECORDS).glob("*_parts/*.pxi"))

setup(
    ext_modules=[
        Extension(
            f"barnabas.records.{name}",
            [f"{RECORDS}/{name}.pyx"],
            depends=PARTS,
            extra_compile_args=["-O3", *ERRORS_SINCE_GCC_14],
            optional=True,
        )
        for name in ("codec_compiled", "scan_compiled", "compaction_compiled")
    ]
)
