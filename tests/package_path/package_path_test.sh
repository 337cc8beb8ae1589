#!/usr/bin/env bash
# package_path_test.sh SOURCE_DIR: with tools/package_path.sh as the PATH, what
# tools/setup.sh installs is found and works, and nothing else is found.
set -euo pipefail
source_dir=$1
command -v dpkg-query >/dev/null && command -v apt-cache >/dev/null || exit 77
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
  echo "FAILED: $*" >&2
  exit 1
}

"$source_dir/tools/package_path.sh" "$work/path"
for program in bash awk cmake ctest ninja g++ git python3 setarch; do
  [[ -x $work/path/$program ]] || fail "$program is not found"
done
# Neither packages that setup.sh does not name, nor programs without a package.
for program in make sudo curl nvcc; do
  [[ ! -e $work/path/$program ]] || fail "$program is found"
done

cat >"$work/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.25)
project(probe LANGUAGES CXX)
END
configure() {
  env -i PATH="$work/path" cmake -S "$work" -B "$work/build" --fresh "$@" \
    >"$work/out" 2>&1
}
configure -G Ninja || fail "Ninja does not work: $(<"$work/out")"
! configure || fail "CMake's default generator works without make"
echo "package_path_test: ok"
