#!/bin/sh
# Makes .venv in the clone and installs Barnabas into it, editable, with one set of extras.
#
#   tools/setup.sh demo     what the demo needs (Spark, Iceberg, the flights, matplotlib)
#   tools/setup.sh dev      that, and what tests and checks need
#
# A stamp in .venv holds the checksum of pyproject.toml, so that a second run does nothing.
set -eu
cd "$(dirname "$0")/.."
. tools/say.sh

extra=${1:?"usage: tools/setup.sh demo|dev"}
stamp=.venv/installed-$extra
wanted=$(cksum <pyproject.toml)

is_installed() {
    .venv/bin/python -c 'import barnabas' 2>/dev/null && [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]
}

# Prints the first Python of version 3.11 or later.
find_python() {
    for python in python3 python3.14 python3.13 python3.12 python3.11; do
        if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            command -v "$python"
            return
        fi
    done
    die "needs Python 3.11 or later, and found $(python3 --version 2>/dev/null || echo none). Install one, for example: apt-get install python3"
}

make_venv() {
    if .venv/bin/python -m pip --version >/dev/null 2>&1; then
        return
    fi
    python=$(find_python)
    if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
        version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
        apt_install "the module venv of Python $version" "python$version-venv"
    fi
    say "making a virtual environment in .venv ($("$python" --version))"
    "$python" -m venv --clear .venv
}

is_installed && exit 0
make_venv
say "installing barnabas[$extra] into .venv (the first time a few minutes: PySpark is 400 MB and is built here)"
.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-input --editable ".[$extra]" ||
    die "pip could not install barnabas[$extra]; its error is above. Is a package index reachable?"
if [ "$extra" = dev ]; then
    echo "$wanted" >.venv/installed-demo # dev contains demo
fi
echo "$wanted" >"$stamp"
