#!/usr/bin/env bash
# Packs what proves cohort on a machine with a GPU: the runtime, the GPU tests and
# benches, the examples that need no LibTorch, and their data.
#
#   tools/gpu_bundle.sh [DIR | FILE.tar.xz]     build/cohort-gpu.tar.xz when left out
#
# DIR is filled, and must be empty or absent.  The bundle runs from any directory of
# any x86-64 Linux with glibc 2.36 or newer: programs hold everything but libc, what
# Debian has as a shared object only lies in lib/, the driver and NCCL are opened at
# run time.  What needs a newer glibc, another library, or more than 40 MiB is
# refused.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly glibc_newest=2.36 bytes_max=$((40 << 20)) build=build/release
# glibc's own, on every machine.
readonly libc='^(libc|libm|libdl|libpthread|librt|libresolv|ld-linux-x86-64)\.so\.'
# prometheus-cpp and Gloo have no archive in Debian, and bring the C++ library; Gloo
# also what its transports need.
carried='^(libprometheus-cpp-core|libstdc\+\+|libgcc_s|libgloo|libhiredis|libibverbs'
readonly carried+='|libnl-route-3|libnl-3)\.so\.'

target=${1:-build/cohort-gpu.tar.xz}
if (($# > 1)) || [[ $target == -* ]]; then
  sed -n '2,12s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
fail() {
  echo "gpu_bundle: $*" >&2
  exit 125
}
if [[ $target == *.tar.xz ]] && ! command -v xz >/dev/null; then
  fail "there is no xz to pack with: install xz-utils"
fi
if [[ $target != *.tar.xz && -e $target && -n $(ls -A "$target") ]]; then
  fail "$target is not empty"
fi

# programs DIR: the ELF files of a bundle.
programs() {
  find "$1/bin" "$1/tests" "$1/lib" -type f 2>/dev/null | sort
}

# needs FILE: the shared objects that it names.
needs() {
  objdump -p "$1" | awk '$1 == "NEEDED" { print $2 }'
}

# Copies to lib/ what programs need and Debian has as a shared object only.
carry_libraries() {
  local program name path
  mkdir -p "$1/lib"
  while read -r program; do
    while read -r name _ path _; do
      [[ $name =~ $carried ]] || continue
      strip -o "$1/lib/$name" "$(readlink -f "$path")"
    done < <(ldd "$program" 2>/dev/null || true)  # Not of a static one.
  done < <(programs "$1")
}

# Refuses what another machine could not load.
check_needs() {
  local file name version newest status=0
  while read -r file; do
    while read -r name; do
      [[ $name =~ $libc || -e $1/lib/$name ]] && continue
      echo "gpu_bundle: ${file#"$1"/} needs $name" >&2
      status=1
    done < <(needs "$file")
    while read -r version; do
      newest=$(printf '%s\n' "$version" "$glibc_newest" | sort -V | tail -n 1)
      [[ $newest == "$glibc_newest" ]] && continue
      echo "gpu_bundle: ${file#"$1"/} needs GLIBC_$version," \
        "newer than $glibc_newest: build on Debian 12" >&2
      status=1
    # Symbols, and the loader's own words, such as GLIBC_ABI_DT_RELR.
    done < <({ objdump -T "$file" 2>/dev/null || true; objdump -p "$file"; } |
      grep -oE '\bGLIBC_[0-9A-Z._]+' | sed 's/^GLIBC_//' | sort -Vu)
  done < <(programs "$1")
  return "$status"
}

cmake --preset release -Wno-dev | grep cohort: || fail "configuring failed"
cmake --build --preset release --target bundle

work=$(mktemp -d build/bundle.XXXXXX)
trap 'rm -rf "$work"' EXIT
name=cohort-gpu
root=$work/$name
cmake --install $build --component bundle --strip --prefix "$PWD/$root" >/dev/null
carry_libraries "$root"
check_needs "$root" || fail "this bundle would not run elsewhere"

if [[ $target != *.tar.xz ]]; then
  mkdir -p "$target"
  cp -a "$root/." "$target/"
  echo "gpu_bundle: $target, $(du -sh "$target" | cut -f 1)"
  exit
fi
mkdir -p "$(dirname "$target")"
echo "gpu_bundle: packing, which takes a minute or two"
tar -C "$work" --sort=name --owner=0 --group=0 --numeric-owner -cf - "$name" |
  xz -9e -T1 >"$work/packed"
bytes=$(stat -c %s "$work/packed")
((bytes < bytes_max)) ||
  fail "$((bytes >> 20)) MiB, more than $((bytes_max >> 20)) MiB"
mv "$work/packed" "$target"
chmod 644 "$target"
echo "gpu_bundle: $target, $((bytes >> 20)) MiB; unpack it anywhere, then" \
  "$name/run COMMAND or $name/tools/gpu_check.sh"
