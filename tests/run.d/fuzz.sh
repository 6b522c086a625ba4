# Fuzz targets: each is fuzzed for a while, starting from its corpus. They are built with coverage and without sanitizers, so that
# the stable compiler builds them: the crates have no unsafe code that a sanitizer would find fault with. Sourced by tests/run.

cargo_fuzz_version=0.13.2
cargo_fuzz=$cache/cargo-fuzz/$cargo_fuzz_version/bin/cargo-fuzz
# How long each target is fuzzed, in seconds. EH_FUZZ_SECONDS is for longer runs.
fuzz_seconds=${EH_FUZZ_SECONDS:-30}
# The longest input, in bytes, and the longest time and the most memory for one, in seconds and MiB.
fuzz_limits=(-max_len=4096 -timeout=20 -rss_limit_mb=1024)

# fuzz_target_names: prints the names, one per line.
fuzz_target_names() {
    basename -s .rs fuzz/fuzz_targets/*.rs
}

install_cargo_fuzz() {
    [ -x "$cargo_fuzz" ] && { echo "cargo-fuzz: there"; return 0; }
    echo "cargo-fuzz: building $cargo_fuzz_version"
    if ! cargo install cargo-fuzz --version "$cargo_fuzz_version" --locked --root "$(dirname "$(dirname "$cargo_fuzz")")" \
        --target-dir "$work/cargo-fuzz" >"$work/cargo-fuzz.log" 2>&1; then
        tail -n 20 "$work/cargo-fuzz.log"
        return 1
    fi
    rm -rf "$work/cargo-fuzz"
}

build_fuzz_targets() {
    # Cross-crate optimization would take longer than the fuzzing.
    CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_DEBUG=line-tables-only "$cargo_fuzz" build --fuzz-dir fuzz \
        --target-dir "$fuzz_folder" --features libfuzzer --sanitizer none >"$work/fuzz-build.log" 2>&1 && return
    tail -n 20 "$work/fuzz-build.log"
    return 1
}

# fuzz_target NAME: fuzzes one target. The corpus of the checkout stays as it is; new inputs and the one that failed stay in the
# folder of the run.
fuzz_target() {
    local name=$1 seed=$((RANDOM * 32768 + RANDOM + 1)) status=0 folder=$work/fuzz/$1
    mkdir -p "$folder/found" "$folder/failed"
    "$fuzz_folder"/*/release/"$name" "$folder/found" "fuzz/corpus/$name" "${fuzz_limits[@]}" -seed="$seed" \
        -max_total_time="$fuzz_seconds" -artifact_prefix="$folder/failed/" -print_final_stats=1 >"$folder/log" 2>&1 || status=$?
    echo "$status" >"$folder/status"
}

# Fuzzes all targets, as many at the same time as there are processors. One target is one test.
fuzz_targets() {
    local name fuzz_folder=${CARGO_TARGET_DIR:-$PWD/target}/fuzz
    if ! install_cargo_fuzz || ! build_fuzz_targets; then
        failed=$((failed + 1))
        failures+=("fuzz targets: they could not be built")
        return
    fi
    set -m
    (
        set +m
        for name in $(fuzz_target_names); do
            [ "$(jobs -rp | wc -l)" -lt "$(nproc)" ] || wait -n
            fuzz_target "$name" &
        done
        wait
    ) &
    background=$!
    set +m
    wait "$background"
    background=
    for name in $(fuzz_target_names); do
        if [ "$(cat "$work/fuzz/$name/status")" -eq 0 ]; then
            passed=$((passed + 1))
            echo "$name: $(grep -a 'stat::number_of_executed_units' "$work/fuzz/$name/log" | grep -oE '[0-9]+$') inputs," \
                "$(grep -aoE 'Seed: [0-9]+' "$work/fuzz/$name/log"), $(grep -aoE 'cov: [0-9]+' "$work/fuzz/$name/log" | tail -n 1)"
        else
            failed=$((failed + 1))
            failures+=("fuzz target $name: $(find "$work/fuzz/$name/failed" -type f | head -n 1)")
            tail -n 30 "$work/fuzz/$name/log"
        fi
    done
}
