#!/usr/bin/env bash
# kazoo's suite and ZooKeeper's own command line, with the same expectations, against the real server and then
# against the embedded one. The embedded server ends with its standard input.
set -euo pipefail
python=${ENGINEHOUSE_TEST_CACHE:-$HOME/.cache/enginehouse-tests}/venv/bin/python
suites=crates/embedded-zookeeper/tests
: "${EH_TEST_ZOOKEEPER:?is not set: run tests/run, which starts the servers}"

serve=target/debug/examples/serve
[ -x "$serve" ] || { echo "$serve is missing: cargo build --workspace --all-targets" >&2; exit 1; }
folder=$(mktemp -d)
mkfifo "$folder/input"
"$serve" <"$folder/input" >"$folder/output" 2>"$folder/errors" &
server=$!
exec 3>"$folder/input"
finish() {
    exec 3>&-
    wait "$server" || true
    rm -rf "$folder"
}
trap finish EXIT
for _ in $(seq 100); do
    grep -q '^listening: ' "$folder/output" && break
    kill -0 "$server" 2>/dev/null || { cat "$folder/errors" >&2; exit 1; }
    sleep 0.1
done
embedded=$(sed -n 's/^listening: //p' "$folder/output")
[ -n "$embedded" ] || { echo "the embedded server did not listen within 10 s" >&2; exit 1; }

results=()
for server_at in "real $EH_TEST_ZOOKEEPER" "embedded $embedded"; do
    read -r which address <<<"$server_at"
    echo "== $which: $address"
    "$python" "$suites/kazoo_suite.py" "$address" | tee "$folder/kazoo"
    "$suites/zkcli_suite.sh" "$address" | tee "$folder/zkcli"
    results+=("$which: $(tail -n 1 "$folder/kazoo"), $(tail -n 1 "$folder/zkcli")")
done
printf '%s; ' "${results[@]}" | sed 's/; $//'
echo
