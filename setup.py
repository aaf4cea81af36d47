"""The one thing that pyproject.toml cannot say yet: the record codec and the scan over batch headers are compiled.

Where there is no C compiler they are left out (`optional`), and their twins in Python do the work; `barnabas --version`
says which of the two is in use.
"""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            f"barnabas.records.{name}",
            [f"src/barnabas/records/{name}.pyx"],
            extra_compile_args=["-O3"],
            optional=True,
        )
        for name in ("codec_compiled", "scan_compiled")
    ]
)
