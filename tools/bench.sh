#!/usr/bin/env bash
# Runs benches on a release build.
#
#   tools/bench.sh [--json] [--quick] NAME...
#
# NAME: as in bench/NAME.cc or NAME.py; without one, the list.  One line a figure, with its
# floor beside it; --json: one object a line; --quick: fewer, shorter runs.
# bench/README.md says what the figures mean.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

scripts=(burst cli logs scripts short_jobs)
flags=()
names=()
for arg in "$@"; do
  case $arg in
    --json | --quick) flags+=("$arg") ;;
    -*)
      sed -n '2,8s/^# \{0,1\}//p' "$0" >&2
      exit 2
      ;;
    *) names+=("$arg") ;;
  esac
done

# stdout is for figures alone.
tools/setup.sh --bench >&2
cmake --preset release >/dev/null
cmake --build --preset release --target all benches >&2

available() {
  {
    find build/release/bin -maxdepth 1 -name 'bench_*' -type f -printf '%f\n' |
      sed 's/^bench_//'
    printf '%s\n' "${scripts[@]}"
  } | sort
}

program_of() {
  if [[ " ${scripts[*]} " == *" $1 "* ]]; then
    echo "bench/$1.py"
  else
    echo "build/release/bin/bench_$1"
  fi
}

if ((${#names[@]} == 0)); then
  echo "bench: name one or more of:" >&2
  available >&2
  exit 2
fi
for name in "${names[@]}"; do
  if [[ ! -x $(program_of "$name") ]]; then
    echo "bench: no bench is named $name; there are:" >&2
    available >&2
    exit 2
  fi
done
status=0
for name in "${names[@]}"; do
  "$(program_of "$name")" "${flags[@]}" || status=125
done
exit "$status"
