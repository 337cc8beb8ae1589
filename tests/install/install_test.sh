#!/usr/bin/env bash
# install_test.sh CMAKE BUILD_DIR CXX TORCH: installs BUILD_DIR into a temporary
# place, builds the projects beside this script against it with CXX, and runs their
# programs; the one that needs LibTorch if TORCH is 1.
set -euo pipefail

cmake=$1 build=$2 cxx=$3 torch=$4
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d /var/tmp/cohort-install.XXXXXX)
trap 'rm -rf "$work"' EXIT

"$cmake" --install "$build" --prefix "$work/prefix" >"$work/install.log"
grep -q 'Installing: .*cohortConfig.cmake' "$work/install.log"

# An install tree that refers to the build tree or the sources is none.
if grep -rlIF -e "$build" -e "$(dirname "$(dirname "$here")")/" \
  "$work/prefix/include" "$work"/prefix/lib*/; then
  echo "install: the files above name the build or source directory" >&2
  exit 1
fi

# build_and_run PROJECT PROGRAM
build_and_run() {
  "$cmake" -S "$here/$1" -B "$work/$1" -G Ninja \
    -DCMAKE_CXX_COMPILER="$cxx" -DCMAKE_PREFIX_PATH="$work/prefix"
  "$cmake" --build "$work/$1"
  (cd "$work/$1" && "./$2")
}

build_and_run project greet
if ((torch)); then build_and_run torch_project average; fi

for program in "$work"/prefix/bin/*; do
  [[ -e $program ]] || continue
  [[ -x $program ]] || { echo "install: $program is not executable" >&2; exit 1; }
done
