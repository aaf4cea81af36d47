# shellcheck shell=sh
# Functions for the other scripts, which source this file: messages, and packages of the system.

say() {
    echo "setup: $*" >&2
}

die() {
    say "$*"
    exit 1
}

# install_packages PACKAGE...: installs with apt-get if that needs no password; otherwise prints the command for the
# user.
install_packages() {
    if ! command -v apt-get >/dev/null; then
        die "this machine lacks what these Debian packages hold; install it, then run this again: $*"
    elif [ "$(id -u)" = 0 ]; then
        as_root=""
    elif sudo -n true 2>/dev/null; then
        as_root="sudo -n"
    else
        die "this machine lacks some packages; install them as root, then run this again: apt-get install $*"
    fi
    say "installing packages of the system: $*"
    $as_root apt-get update -qq >/dev/null || say "apt-get update failed; going on with the lists that are there"
    $as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get install -qq -o Dpkg::Use-Pty=0 --no-install-recommends "$@" >/dev/null </dev/null ||
        die "apt-get could not install: $*"
}
