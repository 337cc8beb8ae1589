#!/usr/bin/env bash
# What is run by hand before an issue is called done, beyond .ci/run.
#
#   tools/check.sh         both compilers, lint, clang-tidy on the files that
#                          differ from the main branch, 2,000 fresh seeds of the
#                          simulation, 40 rounds of faults under a training,
#                          20 kills of the head under an audit, each fuzzer for a
#                          minute
#   tools/check.sh --all   clang-tidy on every file, 100,000 seeds, 1,000 of the
#                          autoscaler's faults, 200 rounds and 3 epochs through
#                          each fault, 200 kills of the head, all limits at
#                          once, fuzzers for 5 min, every test under
#                          AddressSanitizer; on a clang that can (16 and later)
#                          the LibTorch parts too; the tests of the providers on
#                          a real Docker and Kubernetes (built once, 9 min), and
#                          of Lightning, Fabric and Accelerate on PyPI's torch
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=tools/lib.sh
source tools/lib.sh

all=0
case ${1:-} in
  "") ;;
  --all) all=1 ;;
  *)
    sed -n '2,16s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac

failed=0

build_and_test() {
  local preset=$1
  shift
  stage "$preset: configure" cmake --preset "$preset" "$@" &&
    stage "$preset: build" cmake --build --preset "$preset" --target all benches &&
    stage "$preset: tests" run_ctest "$preset"
}

# The sources that clang-tidy looks at: those that the dev build compiles.
tidy_files() {
  local base
  if ((all)); then
    git ls-files '*.cc'
  else
    base=$(git merge-base HEAD origin/main 2>/dev/null ||
      git merge-base HEAD main 2>/dev/null || git rev-parse HEAD)
    git diff --name-only --diff-filter=d "$base" -- '*.cc'
  fi | while read -r file; do
    if grep -qF "\"$PWD/$file\"" build/dev/compile_commands.json; then
      echo "$file"
    fi
  done
}

tidy() {
  tidy_files | xargs --no-run-if-empty -P "$(nproc)" -n 1 \
    clang-tidy -p build/dev --quiet
}

shell_lint() {
  git ls-files -z '*.sh' .ci/run | xargs -0 shellcheck -x
}

simulate() {
  local first=$((RANDOM * 1000000 + RANDOM))
  echo "replay a seed with build/release/bin/sim_main --seed N --verbose"
  # One process a core, each with seeds of its own.
  local count=$((all ? 100000 : 2000)) cores status=0 pids=()
  cores=$(nproc)
  for ((i = 0; i < cores; ++i)); do
    build/release/bin/sim_main --seed $((first + i * (count / cores + 1))) \
      --seeds $((count / cores + 1)) 2>/dev/null &
    pids+=($!)
  done
  for pid in "${pids[@]}"; do wait "$pid" || status=1; done
  return "$status"
}

# The autoscaler's own: its head is killed at its writes.
scale() {
  COHORT_SEEDS=1000 build/release/tests/head_autoscaler_test --gtest_brief=1 \
    --gtest_filter='Seeds/*' 2>/dev/null
}

faults() {
  local count=40
  ((all)) && count=200
  export COHORT_BIN=$PWD/build/release/bin
  /usr/bin/python3 tests/itest/faults.py --count "$count" || return 1
  if ((all)); then /usr/bin/python3 tests/itest/faults.py --full; fi
}

audit() {
  COHORT_BIN=$PWD/build/release/bin \
    /usr/bin/python3 tests/itest/audit.py --count $((all ? 200 : 20))
}

limits() {
  COHORT_BIN=$PWD/build/release/bin /usr/bin/python3 tests/itest/limits.py
}

# Each fuzzer goes on from the corpus that earlier calls left in build/fuzz.
fuzz() {
  local fuzzer name corpus status=0
  cmake --preset fuzz && cmake --build --preset fuzz --target fuzzers || return 1
  for fuzzer in build/fuzz/fuzz/*_fuzzer; do
    name=$(basename "$fuzzer" er)
    corpus=build/fuzz/corpus/$name
    "build/fuzz/tests/$name" --write-seeds "$corpus"
    if "$fuzzer" -max_total_time=$((all ? 300 : 60)) -max_len=65536 \
      -rss_limit_mb=1024 -print_final_stats=1 \
      -artifact_prefix="build/fuzz/$name-" "$corpus" \
      >"build/fuzz/$name.log" 2>&1; then
      echo "$name: $(awk '/number_of_executed_units/ { print $2 }' \
        "build/fuzz/$name.log") inputs, nothing found"
    else
      tail -n 40 "build/fuzz/$name.log"
      status=1
    fi
  done
  return "$status"
}

# Without which the tests of two providers are skipped.
engines() {
  ((EUID == 0)) || { echo "check: not root: left out" && return; }
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends docker.io >/dev/null &&
    tools/kubernetes_engine.sh
}

frameworks() {
  tools/frameworks.sh &&
    COHORT_BIN=$PWD/build/release/bin /usr/bin/python3 tests/itest/frameworks.py
}

clang_major() {
  clang++ -dumpversion | cut -d. -f1
}

stage "packages" tools/setup.sh --dev
if ((all)); then
  stage "engines" engines || failed=1
fi
stage "shellcheck" shell_lint || failed=1
build_and_test dev || failed=1
stage "clang-tidy" tidy || failed=1
build_and_test release || failed=1
stage "simulation" simulate || failed=1
stage "faults" faults || failed=1
stage "audit" audit || failed=1
stage "fuzzing" fuzz || failed=1
if ((all)); then
  stage "limits" limits || failed=1
  stage "frameworks" frameworks || failed=1
  stage "autoscaler" scale || failed=1
  build_and_test asan || failed=1
  if (($(clang_major) >= 16)); then
    build_and_test clang-release || failed=1
  else
    echo "check: clang $(clang_major) cannot compile LibTorch in C++20: left out"
  fi
fi

print_stages
print_test_counts
if ((failed)); then echo "check: FAILED" && exit 1; fi
echo "check: ok"
