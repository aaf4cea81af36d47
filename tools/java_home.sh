#!/bin/sh
# Prints the home of a Java runtime of version 17 or later, which Spark needs; installs one when there is none.
set -eu
cd "$(dirname "$0")/.."
. tools/say.sh

# is_new_enough HOME: whether HOME/bin/java runs and is 17 or later ("1.8.0" counts as 1).
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

find_java && exit 0
apt_install "a Java runtime 17 or later, for Spark," openjdk-17-jre-headless openjdk-21-jre-headless default-jre-headless
find_java || die "installed a Java runtime, but found none of version 17 or later"
