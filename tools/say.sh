# Sourced by the other scripts: messages, and packages of the system.

say() {
    echo "setup: $*" >&2
}

die() {
    echo "setup: $*" >&2
    exit 1
}

# apt_install WHAT PACKAGE...: installs the first of the packages that this release has, or says in one line
# what a person must do. Asks for no password: it runs as root, or where sudo needs none.
apt_install() {
    what=$1
    shift
    if [ "$(id -u)" = 0 ]; then
        as_root=env
    elif sudo -n true 2>/dev/null; then
        as_root="sudo -n env"
    else
        die "needs $what. Install it as root, then run this again: apt-get install $1"
    fi
    command -v apt-get >/dev/null || die "needs $what ($1 in Debian), and this system has no apt-get. Install it, then run this again"
    say "installing $what"
    $as_root apt-get update -qq >/dev/null || say "apt-get update failed; going on with the package lists there are"
    for package in "$@"; do
        if apt-cache show "$package" >/dev/null 2>&1; then
            $as_root DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$package" >/dev/null </dev/null ||
                die "apt-get could not install $package; its error is above"
            return
        fi
    done
    die "needs $what, and this release has none of the packages: $*"
}
