#!/usr/bin/env bash
# Compiles the program of this folder:
#
#     compile.sh GO FOLDER    # makes FOLDER/kubernetes-server
#
# The modules, and what the compiler makes of them (3 GB), go to the same folder; the modules come from where Go's own
# settings say (GOPROXY), and are those of go.sum or none. What is in this folder decides which program it is: a change of any
# file here builds it anew.
set -euo pipefail
go=$1 folder=$2
cd "$(dirname "$0")"
release=$(awk '$1 == "k8s.io/kubernetes" { print $2 }' go.mod)
[ -n "$release" ] || { echo "go.mod names no release of k8s.io/kubernetes" >&2; exit 1; }
version=k8s.io/component-base/version
export GOFLAGS=-modcacherw GOWORK=off GOTOOLCHAIN=local GOPATH=$folder/path GOCACHE=$folder/cache CGO_ENABLED=0
# Nobody debugs it: neither the compiler nor the linker writes what only a debugger reads.
exec "$go" build -trimpath -mod=readonly -buildvcs=false -tags=grpcnotrace -gcflags=all=-dwarf=false \
    -ldflags="-s -w -X $version.gitVersion=$release -X $version.gitMajor=1 -X $version.gitMinor=$(cut -d. -f2 <<<"$release")" \
    -o "$folder/kubernetes-server" .
