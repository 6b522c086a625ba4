#!/usr/bin/env bash
# With an empty cache: what tests/run.d/kubernetes.sh does where there is no module proxy, and where Go is too old and pip
# has none. Each time it has to fail, say what is missing, and leave nothing that a later run would take for a program.
set -euo pipefail
. tests/run.d/install.sh
. tests/run.d/kubernetes.sh
here=$cache
folder=$(mktemp -d /var/tmp/enginehouse-kubernetes.XXXXXX)
trap 'rm -rf "$folder"' EXIT
work=$folder/work cache=$folder/cache
mkdir "$work" "$cache"

# fails_saying WORDS: the installation fails, says so, and nothing is left that a later run would take for a program.
fails_saying() {
    local output
    if output=$(install_kubernetes 2>&1); then echo "it was built: $output"; exit 1; fi
    grep -qF "$1" <<<"$output" || { echo "it does not say \"$1\": $output"; exit 1; }
    [ -z "$(find "$cache/kubernetes" \( -name build -o -name kubernetes-server \) -print)" ] ||
        { echo "something is left:"; find "$cache/kubernetes"; exit 1; }
}

go=$(cache=$here go_for_kubernetes)
GOPROXY=off fails_saying "It needs a Go module proxy (GOPROXY"

# A Go that is too old, and nothing that pip could install.
printf '#!/bin/sh\necho go1.19.8\n' >"$folder/go"
chmod 755 "$folder/go"
known_gos() { echo "$folder/go"; }
export PIP_NO_INDEX=1 PIP_FIND_LINKS=
fails_saying "Install Go 1.25.0 or later, or let pip reach an index that has $kubernetes_go"
echo "$("$go" version): says what is missing"
