# Programs in Go that tests start, each built once from a module of this repository and kept in the cache. Sourced by tests/run, after
# kubernetes.sh, whose Go they take.

# kustomize: the library that kubectl has, so that what the tests look at is what an operator would apply.
install_kustomize() {
    install_go_program tests/kubernetes/render EH_TEST_KUSTOMIZE
}

# gohive: the Go driver for HiveServer2, as a client. For tickets it loads the library of Kerberos, which needs cgo.
install_gohive() {
    cgo=1 install_go_program tests/gohive EH_TEST_GOHIVE -tags=kerberos
}

# usql: with its driver for Hive alone.
install_usql() {
    package=github.com/xo/usql install_go_program tests/usql EH_TEST_USQL -tags=no_base,hive
}

# cert-manager: its controllers. What they work with is defined in its module, too.
cert_manager_module=tests/kubernetes/cert-manager
install_cert_manager() {
    install_go_program "$cert_manager_module" EH_TEST_CERT_MANAGER
}

# install_cert_manager_definitions: exports the folder with the definitions of its resources, for API servers.
install_cert_manager_definitions() {
    local module=github.com/cert-manager/cert-manager folder
    folder=$cache/cert-manager/definitions-$(go_program_key "$cert_manager_module")
    export EH_TEST_CERT_MANAGER_DEFINITIONS=$folder
    if [ -d "$folder" ]; then
        echo "cert-manager's definitions: there"
        return 0
    fi
    echo "cert-manager's definitions: fetching"
    local go new=$folder.$$ log=$work/cert-manager-definitions.log status
    go=$(go_for_kubernetes "$cert_manager_module") || return 1
    mkdir -p "$new/definitions"
    (
        cd "$cert_manager_module" || exit 1
        GOFLAGS=-modcacherw GOWORK=off GOTOOLCHAIN=local GOPATH=$new/path "$go" mod download "$module"
    ) >"$log" 2>&1 && cp "$new/path/pkg/mod/$module"@*/deploy/crds/cert-manager.io_*.yaml "$new/definitions" >>"$log" 2>&1
    status=$?
    # Another run may have been first.
    [ "$status" -ne 0 ] || mv -T "$new/definitions" "$folder" 2>/dev/null || [ -d "$folder" ] || status=1
    rm -rf "$new"
    [ "$status" -eq 0 ] || tail -n 20 "$log"
    return "$status"
}

# install_go_program MODULE VARIABLE OPTION…: builds the program unless it is there, and exports the variable with its path. The
# options are those of `go build`; `cgo=1` permits C, and `package` is another one than that of the folder.
install_go_program() {
    local module=$1 name folder
    name=$(basename "$module")
    folder=$cache/$name/$(go_program_key "$module")
    export "$2=$folder/$name"
    if [ -x "$folder/$name" ]; then
        echo "$name: there"
        return 0
    fi
    mkdir -p "$folder"
    # Two runs at once build it once.
    (
        flock 9
        [ -x "$folder/$name" ] || build_go_program "$module" "$folder" "$name" "${@:3}"
    ) 9>"$folder/lock"
}

go_program_key() {
    { cat "$1"/go.mod "$1"/go.sum "$1"/*.go tests/run.d/go-programs.sh && uname -m; } | sha256sum | cut -c1-16
}

build_go_program() {
    local module=$1 folder=$2 name=$3 go status
    go=$(go_for_kubernetes "$module") || return 1
    echo "$name: building"
    rm -rf "$folder/build"
    compile_go_program "$module" "$folder" "$name" "$go" "${@:4}" >"$work/$name-build.log" 2>&1
    status=$?
    [ "$status" -eq 0 ] && mv "$folder/build/$name" "$folder/$name"
    rm -rf "$folder/build"
    [ "$status" -eq 0 ] || tail -n 20 "$work/$name-build.log"
    return "$status"
}

compile_go_program() (
    local module=$1 folder=$2 name=$3 go=$4
    cd "$module" || return 1
    GOFLAGS=-modcacherw GOWORK=off GOTOOLCHAIN=local GOPATH=$folder/build/path GOCACHE=$folder/build/cache \
        CGO_ENABLED=${cgo:-0} "$go" build "${@:5}" -trimpath -mod=readonly -buildvcs=false -ldflags="-s -w" -o "$folder/build/$name" "${package:-.}"
)
