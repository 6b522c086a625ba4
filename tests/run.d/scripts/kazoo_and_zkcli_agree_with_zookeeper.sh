#!/usr/bin/env bash
# kazoo's suite and ZooKeeper's own command line, with the same expectations, against the real server and against the embedded
# one. The embedded server ends with its standard input.
set -euo pipefail
python=${ENGINEHOUSE_TEST_CACHE:-$HOME/.cache/enginehouse-tests}/venv/bin/python
suites=crates/embedded-zookeeper/tests
: "${EH_TEST_ZOOKEEPER:?is not set: run tests/run, which starts the servers}"

serve=${CARGO_TARGET_DIR:-target}/debug/examples/serve
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

# against WHICH ADDRESS: both suites against one server, into a log of its own. It fails if one of them does.
against() {
    {
        echo "== $1: $2" &&
            "$python" "$suites/kazoo_suite.py" "$2" | tee "$folder/kazoo of $1" &&
            "$suites/zkcli_suite.sh" "$2" | tee "$folder/zkcli of $1"
    } >"$folder/log of $1" 2>&1
}

# Both servers at the same time: the clients take longer to start than to run.
against real "$EH_TEST_ZOOKEEPER" &
real=$!
status=0
against embedded "$embedded" || status=1
wait "$real" || status=1
cat "$folder/log of real" "$folder/log of embedded"
results=()
for which in real embedded; do
    results+=("$which: $(tail -n 1 "$folder/kazoo of $which"), $(tail -n 1 "$folder/zkcli of $which")")
done
printf '%s; ' "${results[@]}" | sed 's/; $//'
echo
exit "$status"
