# What the tests need: Debian packages (no service is started) and Python packages in an environment of their own. The quick
# tier needs a small part of both, and no server. Sourced by tests/run.

cache=${ENGINEHOUSE_TEST_CACHE:-$HOME/.cache/enginehouse-tests}
venv=$cache/venv
quick_debian_packages=(python3-venv)
debian_packages=("${quick_debian_packages[@]}" openjdk-17-jre-headless zookeeper postgresql mariadb-server thrift-compiler)

# python_packages [GROUP]: prints the pinned requirements of tests/pyproject.toml, with those of an optional group.
python_packages() {
    python3 -c 'import sys, tomllib
project = tomllib.load(open("tests/pyproject.toml", "rb"))["project"]
print(*project["dependencies"], *(it for group in sys.argv[1:] for it in project["optional-dependencies"][group]), sep="\n")' "$@"
}

# The process that installs, while it does.
installing=

# Begins to install what a tier needs, in parallel with the build: it mostly waits for the network.
begin_install() {
    set -m
    "$1" >"$work/install.log" 2>&1 &
    installing=$!
    set +m
}

# Waits for the installation and prints its log.
end_install() {
    local status=0
    wait "$installing" || status=$?
    installing=
    cat "$work/install.log"
    return "$status"
}

install_all() {
    install_debian_packages "${debian_packages[@]}" && install_python_packages $(python_packages servers)
}

install_quick() {
    install_debian_packages "${quick_debian_packages[@]}" && install_python_packages $(python_packages)
}

install_debian_packages() {
    local missing=() package
    for package in "$@"; do
        dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
    done
    [ ${#missing[@]} -eq 0 ] && { echo "Debian packages: all there"; return 0; }
    echo "Debian packages: installing ${missing[*]}"
    # The packages' services must not start: a policy that forbids it, for as long as the installation takes.
    local policy=/usr/sbin/policy-rc.d ours=no
    if [ ! -e "$policy" ]; then
        printf '#!/bin/sh\nexit 101\n' >"$policy"
        chmod 755 "$policy"
        ours=yes
    fi
    export DEBIAN_FRONTEND=noninteractive
    { apt-get install -y --no-install-recommends "${missing[@]}" ||
        { apt-get update && apt-get install -y --no-install-recommends "${missing[@]}"; }; } >"$work/apt.log" 2>&1
    local status=$?
    [ "$ours" = yes ] && rm -f "$policy"
    [ "$status" -eq 0 ] || tail -n 20 "$work/apt.log"
    return "$status"
}

# The environment remembers what was installed into it; one that lacks something gets it, one with another version too.
install_python_packages() {
    local missing=() package
    for package in "$@"; do
        grep -qxF "$package" "$venv/installed" 2>/dev/null || missing+=("$package")
    done
    if [ ${#missing[@]} -eq 0 ]; then
        echo "Python packages: all there"
        return 0
    fi
    echo "Python packages: installing ${missing[*]}"
    mkdir -p "$cache"
    [ -x "$venv/bin/pip" ] || python3 -m venv --clear "$venv" || return 1
    if "$venv/bin/pip" install --quiet "$@" >"$work/pip.log" 2>&1; then
        printf '%s\n' "$@" >"$venv/installed"
        return 0
    fi
    tail -n 20 "$work/pip.log"
    return 1
}
