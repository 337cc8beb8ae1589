#!/usr/bin/env bash
# install_test.sh CMAKE BUILD_DIR CXX: installs BUILD_DIR into a temporary place,
# builds the project beside this script against it with CXX, and runs its program.
set -euo pipefail

cmake=$1 build=$2 cxx=$3
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

"$cmake" -S "$here/project" -B "$work/build" -G Ninja \
  -DCMAKE_CXX_COMPILER="$cxx" -DCMAKE_PREFIX_PATH="$work/prefix"
"$cmake" --build "$work/build"
(cd "$work/build" && ./greet)

for program in "$work"/prefix/bin/*; do
  [[ -e $program ]] || continue
  [[ -x $program ]] || { echo "install: $program is not executable" >&2; exit 1; }
done
