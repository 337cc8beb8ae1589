#!/usr/bin/env bash
# One release build and every test: unit, simulation, integration, lint.
#
#   tools/test.sh [CTEST_ARGUMENT...]      such as -R head, -L unit
#
# Ends with ctest's summary, then the number of tests passed, failed and skipped.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=tools/lib.sh
source tools/lib.sh

tools/setup.sh
stage "configure" cmake --preset release
stage "build" cmake --build --preset release
status=0
stage "tests" run_ctest release "$@" || status=$?
print_stages
print_test_counts
exit "$status"
