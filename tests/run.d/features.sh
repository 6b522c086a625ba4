# The cargo features with which the program is built for the tests: all but zookeeper-tls, whose dependencies have a second provider
# of TLS. `cargo run` builds the default ones. Sourced by tests/run and .ci/run.

# For a build with the program, and for one of the other packages: both have the same features of shared dependencies, so that
# nothing is built twice.
program_features=(--features enginehouse/kerberos,enginehouse/object-stores)
other_features=(--features authentication/kerberos,datafusion-engine/object-stores)
