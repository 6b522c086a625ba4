# TLS to ZooKeeper: its tests need builds with the cargo feature zookeeper-tls, which only the long tier makes. Sourced by tests/run,
# after features.sh.

zookeeper_tls_file=crates/coordination/tests/servers/real_zookeeper_tls.rs

# zookeeper_tls_count: how many tests these are.
zookeeper_tls_count() {
    grep -cE '^ +#\[(tokio::)?test' "$zookeeper_tls_file"
}

zookeeper_tls_tests() {
    rust_job zookeeper-tls --package=coordination --features=zookeeper-tls --test=servers -- --include-ignored real_zookeeper_tls::
    count_rust_tests zookeeper-tls
}

# build_program_with_zookeeper_tls: exports the path of a program that has the feature, for the scenario of it. If it can't be built,
# that scenario fails. Fails if the usual program is not at its place afterwards: both are built into the same file, and the last
# command compiles nothing, because that one is built already.
build_program_with_zookeeper_tls() {
    export EH_TEST_BINARY_ZOOKEEPER_TLS=$work/enginehouse-zookeeper-tls
    cargo build --package enginehouse "${program_features[@]}" --features enginehouse/zookeeper-tls &&
        cp "$EH_TEST_BINARY" "$EH_TEST_BINARY_ZOOKEEPER_TLS"
    cargo test --workspace "${program_features[@]}" --no-run --quiet
}
