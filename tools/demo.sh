#!/usr/bin/env bash
# Trains a convolutional network on MNIST, data-parallel on a head and two
# workers that it starts itself, on a fresh Debian 12 or 13 (root or sudo).
#
#   tools/demo.sh [--epochs N] [--keep]
#
# Installs packages, builds, runs, and ends everything that it started.  Each
# command is shown before it runs and can be typed as it stands.  Results go to
# build/demo; --keep leaves an earlier demo's state there and goes on with it.
set -euo pipefail
cd "$(dirname "$0")/.."

epochs=3
keep=0
while (($#)); do
  case $1 in
    --epochs) epochs=${2:?--epochs needs a number}; shift 2 ;;
    --keep) keep=1; shift ;;
    *) sed -n '2,9s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
  esac
done

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
show() {
  printf '\n$ %s\n' "$*"
  "$@"
}

if [[ -e CMakeLists.txt ]]; then
  say "1. packages and build"
  tools/setup.sh
  cmake --preset release -Wno-dev | grep cohort:
  cmake --build --preset release --target \
    cohort_command cohort-head cohort-worker cohort-keeper mnist
  if [[ ! -x build/release/bin/mnist ]]; then
    echo "demo: LibTorch was not found, so mnist was not built" >&2
    exit 125
  fi
  export PATH=$PWD/build/release/bin:$PATH
else
  say "1. built already (docker/)"
  export PATH=$PWD/bin:$PATH
fi

demo=$PWD/build/demo
((keep)) || rm -rf "$demo"
mkdir -p "$demo"

say "2. a cluster on this machine: one head, two workers of one CPU each"
rm -f "$demo/ready"
up=(cohort up --workers 2 --num-cpus 1 --port 0 --state-dir "$demo/cluster"
  --ready-file "$demo/ready")
printf '\n$ %s &\n' "${up[*]}"
"${up[@]}" &
up_pid=$!
trap 'kill "$up_pid" 2>/dev/null; wait "$up_pid" 2>/dev/null || true' EXIT
while [[ ! -e $demo/ready ]]; do
  kill -0 "$up_pid" 2>/dev/null || { echo "demo: the cluster did not start" >&2; exit 125; }
  read -rt 0.1 <> <(:) || true
done
COHORT_ADDRESS=$(<"$demo/ready")
export COHORT_ADDRESS COHORT_CREDENTIAL_FILE=$demo/cluster/credential
show cohort nodes

say "3. two ranks train a network; their gradients are averaged each step"
submit=(cohort submit --name mnist --num-workers 2 --max-failures 2
  --storage-path "$demo/results" --
  mnist --epochs "$epochs" --data "$PWD/data/mnist" --svg "$demo/loss.svg")
printf '\n$ %s\n' "${submit[*]}"
job=$("${submit[@]}")
echo "$job"
show cohort jobs logs -f "$job"
show cohort jobs wait "$job"
show cohort jobs get "$job"

say "4. the checkpoint by itself gives the same accuracy"
checkpoint=$(cohort jobs get --json "$job" |
  python3 -c 'import json, sys; print(json.load(sys.stdin)["checkpoint"]["path"])')
show mnist --data "$PWD/data/mnist" --evaluate "$checkpoint" | tee "$demo/accuracy"

say "5. everything ends"
kill "$up_pid"
wait "$up_pid" || { echo "demo: the cluster did not end well" >&2; exit 125; }
trap - EXIT

printf '\ncheckpoint: %s\nloss curve: %s\n' "$checkpoint" "$demo/loss.svg"
grep -E '^test accuracy: [0-9.]+ %$' "$demo/accuracy"
echo "demo: ok"
