#!/usr/bin/env bash
# Names, ids and types of our IDL are those of the clients that people have.
set -euo pipefail
exec "${ENGINEHOUSE_TEST_CACHE:-$HOME/.cache/enginehouse-tests}/venv/bin/python" crates/hs2/idl/compare_clients.py
