#!/bin/sh
# Creates .venv in the clone and installs Barnabas into it (editable) with one set of extras. Also installs the system
# packages that Barnabas and Spark need.
#
#   tools/setup.sh demo     packages for the demo (Spark, Iceberg, the flights, matplotlib)
#   tools/setup.sh dev      the same, and packages for tests and checks
#   tools/setup.sh bench    packages for the demo, and the clients and brokers of the comparison
#   tools/setup.sh release  the tools that build and check wheels
#
# A stamp in .venv contains the checksum of the installed sources, so that a second run does nothing.
set -eu
cd "$(dirname "$0")/.."
. tools/say.sh

extra=${1:?"usage: tools/setup.sh demo|dev|bench|release"}
stamp=.venv/installed-$extra
wanted=$(cat pyproject.toml setup.py src/barnabas/records/*.pyx src/barnabas/records/*_parts/*.pxi | cksum)

is_installed() {
    [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ] && .venv/bin/python -c 'import barnabas' 2>/dev/null
}

# Prints the first Python of version 3.11 or later. The system's Python comes first if it can create environments and
# compile extensions: distributions optimize it with PGO, and a default build of pyenv is about a quarter slower.
find_python() {
    for python in /usr/bin/python3 python3 python3.14 python3.13 python3.12 python3.11; do
        [ "$python" != /usr/bin/python3 ] || is_complete "$python" || continue
        if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$python"
            return
        fi
    done
    die "needs Python 3.11 or later; python3 here is: $(python3 --version 2>/dev/null || echo not installed)"
}

is_complete() {
    "$1" -c 'import ensurepip, os, sysconfig, venv; os.stat(sysconfig.get_path("include") + "/Python.h")' 2>/dev/null
}

# Prints the missing system packages.
missing_packages() {
    "$1" -c 'import ensurepip, venv' 2>/dev/null ||
        "$1" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])'
    tools/java_home.sh --find >/dev/null || tools/java_home.sh --package
}

# Tests use kcat as a client; without it they are skipped.
install_kcat() {
    command -v kcat >/dev/null || (install_packages kcat) || say "without kcat its tests are skipped"
}

# Maven downloads brokers and clients in Java, and some are compiled. The comparison leaves out missing ones.
install_maven() {
    if ! command -v mvn >/dev/null || ! command -v javac >/dev/null; then
        (install_packages maven default-jdk-headless) || say "without Maven and a JDK the peers in Java are left out"
    fi
}

# Only once, because Spark's start takes a good part of the demo's time.
make_class_archive() {
    JAVA_HOME=$(tools/java_home.sh) .venv/bin/python -m barnabas.spark.make_class_archive --if-missing >/dev/null || true
}

[ "$extra" != dev ] || install_kcat
[ "$extra" != bench ] || install_maven
if is_installed; then
    [ "$extra" != demo ] || make_class_archive
    exit 0
fi
python=$(find_python)
missing=$(missing_packages "$python")
# shellcheck disable=SC2086  # one word per package
[ -z "$missing" ] || install_packages $missing

if ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
    say "making a virtual environment in .venv ($("$python" --version))"
    "$python" -m venv --clear .venv
fi
say "installing barnabas[$extra] into .venv; the first time this takes minutes (PySpark is 400 MB)"
.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-input --use-pep517 --editable ".[$extra]" ||
    die "pip could not install barnabas[$extra]; its error stands above"
case $extra in
dev | bench) echo "$wanted" >.venv/installed-demo ;; # both contain it
esac
echo "$wanted" >"$stamp"
[ "$extra" != demo ] || make_class_archive
