#!/usr/bin/env bash
# install_test.sh CMAKE BUILD_DIR CXX TORCH: installs BUILD_DIR into a temporary
# place, builds the projects beside this script against it with CXX, and runs their
# programs; the one that needs LibTorch if TORCH is 1, then also against the same
# LibTorch laid out as a torch wheel holds it.
set -euo pipefail

cmake=$1 build=$2 cxx=$3 torch=$4
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d /var/tmp/cohort-install.XXXXXX)
trap '"$work/prefix/bin/cohort" down --state-dir "$work/up" >/dev/null 2>&1 || true
  rm -rf "$work"' EXIT

"$cmake" --install "$build" --prefix "$work/prefix" >"$work/install.log"
grep -q 'Installing: .*cohortConfig.cmake' "$work/install.log"

# An install tree that refers to the build tree or the sources is none.
if grep -rlIF -e "$build" -e "$(dirname "$(dirname "$here")")/" \
  "$work/prefix/include" "$work"/prefix/lib*/; then
  echo "install: the files above name the build or source directory" >&2
  exit 1
fi

# configure PROJECT [FLAG...]
configure() {
  "$cmake" -S "$here/$1" -B "$work/$1" -G Ninja --fresh \
    -DCMAKE_CXX_COMPILER="$cxx" -DCMAKE_PREFIX_PATH="$work/prefix" "${@:2}"
}
# build_and_run PROJECT PROGRAM [FLAG...]
build_and_run() {
  configure "$1" "${@:3}"
  "$cmake" --build "$work/$1"
  (cd "$work/$1" && "./$2")
}

build_and_run project greet
# Against the installed programs.
"$work/prefix/bin/cohort" up --detach --port 0 --http-address 127.0.0.1:0 \
  --state-dir "$work/up" >"$work/up.log"
(
  COHORT_ADDRESS=$(cat "$work/up/address") COHORT_CREDENTIAL_FILE=$work/up/credential
  export COHORT_ADDRESS COHORT_CREDENTIAL_FILE
  "$work/project/train_all" | tee "$work/train_all.log"
)
grep -qx 'rank 1 of 2' "$work/train_all.log"
# An actor, on a cluster that it starts for itself with the installed programs.
[[ $(env -u COHORT_ADDRESS PATH="$work/prefix/bin:$PATH" HOME="$work" \
  "$work/project/counter") == 42 ]]
# A training run, on another such cluster.
(
  cd "$work"
  unset COHORT_ADDRESS
  PATH="$work/prefix/bin:$PATH" HOME="$work" \
    "$work/project/logistic" 2 "$here/../../data/mnist" | tee "$work/logistic.log"
)
grep -q '^accuracy 9[0-9.]* %$' "$work/logistic.log"
grep -q '^metrics {"loss": 0.25}' "$work/train_all.log"
"$work/prefix/bin/cohort" down --state-dir "$work/up"
if ((torch)); then
  build_and_run torch_project average
  (cd "$work" && "$work/torch_project/mnist" --data "$here/../../data/mnist" \
    --steps 2 --test-samples 500 | grep '^test accuracy: ')
fi

# What a build against a wheel installs names that wheel.  Here it is the system's
# LibTorch in a wheel's directories: the real ones are GiB.
config=$(find "$work/prefix" -name cohortConfig.cmake)
if ((torch)) && grep -q 'NOT "" STREQUAL ""' "$config"; then
  wheel=$work/site-packages/torch
  mkdir -p "$wheel"/{include,lib}
  echo "__version__ = '2.7.0+cpu'" >"$wheel/version.py"
  for name in torch_cpu c10; do
    ln -s "$("$cxx" -print-file-name=lib$name.so)" "$wheel/lib/"
  done
  includes=$(dirname "$(echo '#include <ATen/ATen.h>' |
    "$cxx" -x c++ -M - | grep -om1 '/[^ ]*/ATen/ATen.h')")
  ln -s "${includes%/ATen}"/{ATen,c10,caffe2,torch} "$wheel/include/"
  sed -i -e "s|NOT \"\" STREQUAL \"\"|NOT \"$wheel\" STREQUAL \"\"|" \
    -e "s|set(COHORT_TORCH_DIR \"\" CACHE|set(COHORT_TORCH_DIR \"$wheel\" CACHE|" \
    -e 's|VERSION_EQUAL "[^"]*"|VERSION_EQUAL "2.7.0"|' "$config"
  grep -q "set(COHORT_TORCH_DIR \"$wheel\" CACHE" "$config"
  build_and_run torch_project average
  readelf -d "$work/torch_project/average" | grep "RUNPATH.*$wheel/lib" >/dev/null
  # Wherever it lies on this machine.
  mv "$work/site-packages" "$work/elsewhere"
  configure torch_project -DCOHORT_TORCH_DIR="$work/elsewhere/torch"
  grep -q -- "-L$work/elsewhere/torch/lib" "$work/torch_project/build.ninja"
fi

for program in "$work"/prefix/bin/*; do
  [[ -e $program ]] || continue
  [[ -x $program ]] || { echo "install: $program is not executable" >&2; exit 1; }
done
