#!/usr/bin/env bash
# The generated structs of crates/agent-api are what Debian's thrift-compiler makes of its IDL.
set -euo pipefail
exec crates/agent-api/idl/check
