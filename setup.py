"""The one thing that pyproject.toml cannot say yet: the record codec is compiled.

Where there is no C compiler it is left out (`optional`), and its twin in Python does the work; `barnabas --version`
says which of the two is in use.
"""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "barnabas.records.codec_compiled",
            ["src/barnabas/records/codec_compiled.pyx"],
            extra_compile_args=["-O3"],
            optional=True,
        )
    ]
)
