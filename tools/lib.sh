# shellcheck shell=bash
# What tools/*.sh and .ci/run share: stages with their minutes, ctest, its counts.
# Sourced from the repository's root.

stages=()       # "minutes name", one a stage
test_counts=()  # "preset passed failed skipped total", one a ctest run
unsteady=()     # the tests that passed only when run again by themselves

# stage NAME COMMAND...: runs it, notes how long it took, hands on its status.
stage() {
  local name=$1 begin=$SECONDS status=0
  shift
  printf '\n==== %s\n' "$name"
  "$@" || status=$?
  local minutes
  minutes=$(awk -v s=$((SECONDS - begin)) 'BEGIN { printf "%.1f", s / 60 }')
  if ((status == 0)); then
    stages+=("$minutes $name")
  else
    stages+=("$minutes $name: FAILED ($status)")
    printf '==== %s: FAILED (%d)\n' "$name" "$status" >&2
  fi
  return "$status"
}

# Words before each ctest command; .ci/run may set it.
ctest_prefix=()

# The tests' PATH, and all of .ci/run's: only programs of the packages that
# tools/setup.sh installs.
package_path=$PWD/build/package-path

# So many failed tests are run again; of more the cause is not chance.
readonly run_again_at_most=3

# Three tests on two cores: integration tests mostly wait.
readonly tests_at_once=$((($(nproc) * 3 + 1) / 2))

# run_ctest PRESET [CTEST_ARGUMENT...]: the counts are kept.
#
# A few failed tests are run once more, one at a time: on a machine shared with others
# a program may stand still for seconds, which no deadline of a test can allow for.
# One that passes then is counted as passed and named at the end as unsteady.
run_ctest() {
  local preset=$1 status=0 report=$PWD/build/$1/ctest.xml
  shift
  rm -f "$report"
  [[ $PATH == "$package_path" ]] || tools/package_path.sh "$package_path" || return
  PATH=$package_path "${ctest_prefix[@]}" ctest --preset "$preset" \
    --parallel "$tests_at_once" \
    --output-junit "$report" "$@" || status=$?
  [[ -s $report ]] || return "$status"
  local passed failed skipped total
  read -r passed failed skipped total < <(count_tests "$report")
  if ((failed > 0 && failed <= run_again_at_most)) && run_failed_again "$preset"; then
    mapfile -t -O "${#unsteady[@]}" unsteady < <(
      tools/failed_tests.py --names "$report" | sed "s/^/$preset: /")
    passed=$((passed + failed)) failed=0 status=0
  fi
  test_counts+=("$preset $passed $failed $skipped $total")
  return "$status"
}

# run_failed_again PRESET: succeeds when all that failed pass now.
run_failed_again() {
  printf '\n==== %s: the failed tests again, by themselves\n' "$1"
  tools/failed_tests.py "$PWD/build/$1/ctest.xml"
  PATH=$package_path "${ctest_prefix[@]}" ctest --preset "$1" --rerun-failed
}

# count_tests JUNIT_FILE: "passed failed skipped total".
count_tests() {
  local total failed skipped
  total=$(suite_attribute tests "$1")
  failed=$(suite_attribute failures "$1")
  skipped=$(($(suite_attribute skipped "$1") + $(suite_attribute disabled "$1")))
  echo "$((total - failed - skipped)) $failed $skipped $total"
}

suite_attribute() {
  sed -nE "s/^.*\\b$1=\"([0-9]+)\".*\$/\\1/p;" "$2" | head -n 1
}

print_stages() {
  printf '\n==== minutes\n'
  printf '%s\n' "${stages[@]}" |
    awk '{ total += $1; m = $1; $1 = ""; printf "%7.1f %s\n", m, $0 }
         END { printf "%7.1f  in all\n", total }'
}

# Says the number of tests of each ctest run and of all of them.
print_test_counts() {
  printf '\n==== tests\n'
  printf '%s\n' "${test_counts[@]}" | awk '
    NF == 5 {
      printf "%s: %d tests passed, %d failed, %d skipped out of %d\n",
             $1, $2, $3, $4, $5
      passed += $2; failed += $3; skipped += $4; total += $5
    }
    END {
      printf "in all: %d tests passed, %d failed, %d skipped out of %d\n",
             passed, failed, skipped, total
    }'
  if ((${#unsteady[@]})); then
    printf 'passed only when run again: %s\n' "${unsteady[@]}"
  fi
  print_failed_tests
}

# What failed, at the very end: the rest of a long log may be out of reach.
print_failed_tests() {
  local count preset failed
  for count in "${test_counts[@]}"; do
    read -r preset _ failed _ <<<"$count"
    if ((failed)); then
      tools/failed_tests.py "build/$preset/ctest.xml" | tail -n 100
    fi
  done
}
