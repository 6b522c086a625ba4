#!/usr/bin/env bash
# crates/hs2/src/tcli.rs is what Debian's thrift-compiler makes of crates/hs2/idl/TCLIService.thrift.
set -euo pipefail
exec crates/hs2/idl/check
