# kustomize, built once from tests/kubernetes/render and kept in the cache: the library that kubectl has, so that what the
# tests look at is what an operator would apply. Sourced by tests/run, after kubernetes.sh, whose Go it takes.

kustomize_module=tests/kubernetes/render

kustomize_key() {
    { cat "$kustomize_module"/go.mod "$kustomize_module"/go.sum "$kustomize_module"/*.go tests/run.d/kustomize.sh && uname -m; } |
        sha256sum | cut -c1-16
}

# install_kustomize: builds the program unless it is there, and exports where it is.
install_kustomize() {
    local folder
    folder=$cache/kustomize/$(kustomize_key)
    export EH_TEST_KUSTOMIZE=$folder/render
    if [ -x "$EH_TEST_KUSTOMIZE" ]; then
        echo "kustomize: there"
        return 0
    fi
    mkdir -p "$folder"
    # Two runs at once build it once.
    (
        flock 9
        [ -x "$EH_TEST_KUSTOMIZE" ] || build_kustomize "$folder"
    ) 9>"$folder/lock"
}

build_kustomize() {
    local folder=$1 go status
    go=$(go_for_kubernetes) || return 1
    echo "kustomize: building $(awk '$1 == "sigs.k8s.io/kustomize/api" { print $2 }' "$kustomize_module/go.mod")"
    rm -rf "$folder/build"
    compile_kustomize "$folder" "$go" >"$work/kustomize-build.log" 2>&1
    status=$?
    [ "$status" -eq 0 ] && mv "$folder/build/render" "$folder/render"
    rm -rf "$folder/build"
    [ "$status" -eq 0 ] || tail -n 20 "$work/kustomize-build.log"
    return "$status"
}

compile_kustomize() (
    local folder=$1 go=$2
    cd "$kustomize_module" || return 1
    GOFLAGS=-modcacherw GOWORK=off GOTOOLCHAIN=local GOPATH=$folder/build/path GOCACHE=$folder/build/cache CGO_ENABLED=0 \
        "$go" build -trimpath -mod=readonly -buildvcs=false -ldflags="-s -w" -o "$folder/build/render" .
)
