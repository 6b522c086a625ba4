# Counting, timing and the closing line. Sourced by tests/run.

passed=0 failed=0 skipped=0 ignored=0 filtered=0
# The process group that runs in parallel, if any.
background=
failures=()
step_name="" step_began=0
parts=() run_began=$(date +%s)

step() {
    step_name=$1
    step_began=$(date +%s)
    echo
    echo "== $step_name"
}

step_end() {
    local took=$(($(date +%s) - step_began)) allowed
    allowed=$(budget "$tier" "$step_name")
    parts+=("$step_name|$took|$allowed")
    echo "== $step_name: $took s${allowed:+ of $allowed s}"
}

# The duration and the budget of each part.
print_parts() {
    local part name took allowed
    [ ${#parts[@]} -gt 0 ] || return 0
    printf '%-26s %8s %8s\n' part took budget
    for part in "${parts[@]}"; do
        IFS='|' read -r name took allowed <<<"$part"
        printf '%-26s %6s s %8s%s\n' "$name" "$took" "${allowed:+$allowed s}" \
            "$([ -n "$allowed" ] && [ "$took" -gt "$allowed" ] && echo '  over its budget')"
    done
    printf '%-26s %6s s\n' "all of $tier" $(($(date +%s) - run_began))
}

# A step that must succeed for anything else to make sense.
run_step() {
    "$@" && return
    failed=$((failed + 1))
    failures+=("$step_name: $*")
    total
}

# Runs the tests of all packages, in two parallel jobs: cargo runs one binary after the other, and most of them
# wait most of their time, for processes and for times that are promised. The tests of these roles take as long as all
# others, the proxy's included. The fuzz targets are linked with the program, so they belong to its job. The arguments go to the test
# binaries.
roles=(enginehouse engine-agent metadata orchestrator fuzz)
rust_tests() {
    local name
    # A job of its own: others in the background ignore SIGINT, and so would every process that the tests interrupt.
    set -m
    rust_job roles "${roles[@]/#/--package=}" "${program_features[@]}" -- "$@" &
    background=$!
    set +m
    rust_job others --workspace "${roles[@]/#/--exclude=}" "${other_features[@]}" -- "$@"
    wait "$background"
    background=
    ignored=0 filtered=0
    for name in roles others; do count_rust_tests "$name"; done
}

# Prints the output of a job without the tests that pass.
rust_job() {
    local name=$1
    shift
    cargo test --no-fail-fast "$@" 2>&1 | tee "$work/rust-$name.log" |
        grep -a --line-buffered -vE '^(test .* \.\.\. (ok|ignored.*)|running [0-9]+ tests?|)$' |
        grep -a --line-buffered -vE '^ +(Running|Doc-tests|Compiling|Finished)'
    echo "${PIPESTATUS[0]}" >"$work/rust-$name.status"
}

# Sums up the result lines of a job's binaries.
count_rust_tests() {
    local log=$work/rust-$1.log status p f i test
    status=$(cat "$work/rust-$1.status" || echo 1)
    p=$(grep -aoE '^test result: .* ([0-9]+) passed' "$log" | awk '{n += $(NF-1)} END {print n+0}')
    f=$(grep -aoE '; [0-9]+ failed' "$log" | awk '{n += $2} END {print n+0}')
    i=$(grep -aoE '; [0-9]+ ignored' "$log" | awk '{n += $2} END {print n+0}')
    filtered=$((filtered + $(grep -aoE '; [0-9]+ filtered out' "$log" | awk '{n += $2} END {print n+0}')))
    # A runner that ended without saying so (a crash, a build error) is a failure too.
    if [ "$status" -ne 0 ] && [ "$f" -eq 0 ]; then f=1; fi
    passed=$((passed + p)) failed=$((failed + f)) ignored=$((ignored + i))
    while read -r test; do failures+=("$test"); done < <(grep -aE '^test .* \.\.\. FAILED' "$log")
    echo "$1: $p passed, $f failed, $i left for other steps"
}

# Linter and formatter, which change nothing here. Together they are one test.
lint_python() {
    local files=(tests crates/embedded-zookeeper/tests/kazoo_suite.py)
    if "$venv/bin/ruff" check --quiet --no-cache --config tests/pyproject.toml "${files[@]}" &&
        "$venv/bin/ruff" format --quiet --no-cache --check --config tests/pyproject.toml "${files[@]}"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        failures+=("ruff")
    fi
}

# Runs the scripts, all at once: they mostly wait, for programs that start. One script is one test: it passes when it exits with
# 0.
script_tests() {
    local script name
    set -m
    (
        # One process group for all of them.
        set +m
        for script in "$@"; do
            (
                bash "$script" >"$work/$(basename "$script").log" 2>&1
                echo $? >"$work/$(basename "$script").status"
            ) &
        done
        wait
    ) &
    background=$!
    set +m
    wait "$background"
    background=
    for script in "$@"; do
        name=$(basename "$script")
        if [ "$(cat "$work/$name.status")" = 0 ]; then
            passed=$((passed + 1))
            echo "ok     $name: $(tail -n 1 "$work/$name.log")"
        else
            failed=$((failed + 1))
            failures+=("$script")
            echo "FAILED $name"
            tail -n 40 "$work/$name.log"
        fi
    done
}

# Runs scenarios under a name, with further arguments of pytest, and counts the results in pytest's report.
pytest_tests() {
    local name=$1 report=$work/pytest-$1.xml log=$work/pytest-$1.log
    shift
    "$venv/bin/python" -m pytest "$@" --junitxml="$report" -p no:cacheprovider -o console_output_style=classic -v 2>&1 |
        tee "$log" | grep --line-buffered -vE '^$| SKIPPED'
    local counts
    counts=$("$venv/bin/python" - "$report" "$work/pytest-failed" <<'PY'
import sys, xml.etree.ElementTree as tree
try:
    t = f = s = 0
    with open(sys.argv[2], "w") as names:
        for case in tree.parse(sys.argv[1]).getroot().iter("testcase"):
            kinds = {it.tag for it in case}
            t += 1
            s += "skipped" in kinds
            if kinds & {"failure", "error"}:
                f += 1
                print(case.get("classname"), case.get("name"), sep="::", file=names)
    print(t - f - s, f, s)
except Exception as error:
    print(0, 1, 0); print(error, file=sys.stderr)
PY
)
    local p f s
    read -r p f s <<<"$counts"
    if [ "$((p + f + s))" -eq 0 ]; then f=1; failures+=("$name: no scenario was run"); fi
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
    while read -r test; do failures+=("$test"); done <"$work/pytest-failed"
}

# What a tier leaves out is counted too: nothing is skipped silently.
count_left_out() {
    local left
    left=$(grep -oE '[0-9]+ deselected' "$work/pytest-$1.log" | tail -n 1 | grep -oE '[0-9]+')
    skipped=$((skipped + ${left:-0}))
}

# With --long PART: the tests of the other parts are skipped too.
count_left_out_parts() {
    [ ${#selected[@]} -gt 0 ] || return 0
    local part left
    for part in failpoints scenarios alone; do
        runs "$part" && continue
        case "$part" in
            failpoints) left=$(collected $failpoints) ;;
            scenarios) left=$(collected tests/scenarios --ignore=$failpoints -m "not alone") ;;
            alone) left=$(collected tests/scenarios --ignore=$failpoints -m alone) ;;
        esac
        skipped=$((skipped + left))
        echo "$part: $left left out"
    done
    runs rust && return 0
    left=$(cargo test --workspace "${program_features[@]}" -- --list --include-ignored 2>/dev/null | grep -c ': test$')
    skipped=$((skipped + left + $(find tests/run.d/scripts -type f | wc -l)))
    echo "rust: $left left out, and the scripts"
}

# collected ARGUMENTS…: how many scenarios pytest would run with these.
collected() {
    "$venv/bin/python" -m pytest "$@" --collect-only -q -p no:cacheprovider | grep -cE '::'
}

# guarantees rust python: each test that docs/guarantees.md names and this tier runs has passed in this run. One more test.
guarantees() {
    if "$venv/bin/python" tests/scenarios/harness/guarantees.py "$tier" "$work" "$@"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        failures+=("guarantees: a test that the page names did not run")
    fi
}

# The closing line, and the exit status.
total() {
    echo
    print_parts
    for name in "${failures[@]+"${failures[@]}"}"; do echo "failed: $name"; done
    local status=0
    if [ "$failed" -ne 0 ] || [ "$passed" -eq 0 ]; then status=1; fi
    # Cleaning up prints before the closing line, which must be the very last.
    stop_servers
    trap - EXIT INT TERM
    if [ "$status" -eq 0 ] && [ -z "${EH_TEST_KEEP:-}" ]; then rm -rf "$work"; else echo "kept: $work"; fi
    echo "total: $passed passed, $failed failed, $skipped skipped"
    exit "$status"
}
