#!/bin/sh
# Prints the home of a Java runtime of version 17 or later, which Spark needs. Installs one if there is none.
#
#   tools/java_home.sh             find it, or install it
#   tools/java_home.sh --find      find it, or fail
#   tools/java_home.sh --package   print the name of the package to install
set -eu
cd "$(dirname "$0")/.."
. tools/say.sh

# is_new_enough HOME: succeeds if HOME/bin/java runs and has version 17 or later ("1.8.0" counts as 1).
is_new_enough() {
    version=$("$1/bin/java" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p')
    [ "${version:-0}" -ge 17 ]
}

find_java() {
    on_path=$(java -XshowSettings:properties -version 2>&1 | sed -n 's/^ *java.home = //p')
    for home in "${JAVA_HOME:-/none}" "${on_path:-/none}" /usr/lib/jvm/*; do
        if is_new_enough "$home" 2>/dev/null; then
            echo "$home"
            return
        fi
    done
    return 1
}

# Each release of Debian has one of the first two packages. The last one is the fallback without package lists.
java_package() {
    for package in openjdk-17-jre-headless openjdk-21-jre-headless; do
        if LC_ALL=C apt-cache policy "$package" 2>/dev/null | grep -q 'Candidate: [0-9]'; then
            echo "$package"
            return
        fi
    done
    echo default-jre-headless
}

case ${1:-} in
--find) find_java ;;
--package) java_package ;;
*)
    find_java && exit
    install_packages "$(java_package)"
    find_java || die "installed $(java_package), but found no Java of version 17 or later"
    ;;
esac
