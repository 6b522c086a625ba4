# The tests of TLS to ZooKeeper, which need a build with the cargo feature zookeeper-tls: only the long tier makes one. Sourced by
# tests/run.

zookeeper_tls_file=crates/coordination/tests/servers/real_zookeeper_tls.rs

# zookeeper_tls_count: how many tests these are.
zookeeper_tls_count() {
    grep -cE '^ +#\[(tokio::)?test' "$zookeeper_tls_file"
}

zookeeper_tls_tests() {
    rust_job zookeeper-tls --package=coordination --features=zookeeper-tls --test=servers -- --include-ignored real_zookeeper_tls::
    count_rust_tests zookeeper-tls
}
