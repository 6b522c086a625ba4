# Free disk space. Without it a build or a server fails somewhere in the middle, with an error that names something else.
# Sourced by tests/run.

# What a run writes at most, in GiB: the artifacts of a build from cold, and the state of all servers and installations.
build_gib=20
servers_gib=6

# require_disk FOLDER GIB WHAT: ends the run if its file system has less free space than that.
require_disk() {
    local free
    mkdir -p "$1"
    free=$(df --output=avail -k "$1" | tail -n 1)
    [ "$free" -ge $(($2 * 1024 * 1024)) ] && return
    echo "tests/run: $((free / 1024 / 1024)) GiB are free in $1; $3 may need $2 GiB. Free some, or set another folder:" \
        "CARGO_TARGET_DIR for artifacts, /var/tmp for servers" >&2
    exit 2
}

# The build needs the less, the more of it is there already.
require_disk_for_build() {
    local target=${CARGO_TARGET_DIR:-$PWD/target} there=0
    [ -d "$target/debug" ] && there=$(($(du -sk "$target/debug" | cut -f 1) / 1024 / 1024))
    [ "$there" -ge "$build_gib" ] || require_disk "$target" $((build_gib - there)) "the build"
}
