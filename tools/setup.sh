#!/usr/bin/env bash
# Installs the packages that cohort builds and tests with, on Debian 12 or 13.
#
#   tools/setup.sh          what the release build, all tests and the demo need
#   tools/setup.sh --dev    and clang, its sanitizers, clang-format, clang-tidy
#                           and shellcheck (.ci/run, tools/check.sh)
#   tools/setup.sh --bench  and the peers that benches measure beside
#   tools/setup.sh --print  the package names only, installs nothing
#
# As root, or by sudo.  When everything is there it asks no package server.
set -euo pipefail

dev=0
bench=0
print=0
for arg in "$@"; do
  case $arg in
    --dev) dev=1 ;;
    --bench) bench=1 ;;
    --print) print=1 ;;
    *)
      sed -n '2,10s/^# \{0,1\}//p' "$0" >&2
      exit 2
      ;;
  esac
done

packages=(
  # The build.
  g++ cmake ninja-build git
  # RPC and the wire.
  libgrpc++-dev libgrpc-dev protobuf-compiler protobuf-compiler-grpc
  libprotobuf-dev libabsl-dev libre2-dev libc-ares-dev libssl-dev zlib1g-dev
  # The head's store; the CLI.
  librocksdb-dev libcli11-dev nlohmann-json3-dev
  # The head's metrics, and its HTTP server.
  prometheus-cpp-dev libboost-dev
  # Training.  OpenBLAS by name: libtorch is content with any libblas.so.3, and
  # the reference one is 20 times slower.
  libtorch-dev libgloo-dev libopenblas0-pthread
  # The tests.
  libgtest-dev libgmock-dev libarchive-dev python3 python3-torch python3-numpy
  python3-prometheus-client
)
if ((dev)); then
  # The meta packages: clang 14 on Debian 12, clang 19 on Debian 13.
  packages+=(clang libclang-rt-dev clang-format clang-tidy shellcheck)
fi
if ((bench)); then
  packages+=(etcd-server)
fi

if ((print)); then
  printf '%s\n' "${packages[@]}"
  exit 0
fi

if [[ ! -r /etc/debian_version ]] || ! command -v apt-get >/dev/null; then
  echo "setup: this script knows Debian 12 and 13; install the likes of:" >&2
  printf '  %s\n' "${packages[@]}" >&2
  exit 125
fi

missing=()
for package in "${packages[@]}"; do
  # shellcheck disable=SC2016  # dpkg-query's own field syntax.
  state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
  [[ $state == installed ]] || missing+=("$package")
done
if ((${#missing[@]} == 0)); then
  echo "setup: all ${#packages[@]} packages are installed"
  exit 0
fi

as_root=()
if ((EUID != 0)); then
  command -v sudo >/dev/null || {
    echo "setup: run as root, or install sudo; missing: ${missing[*]}" >&2
    exit 125
  }
  as_root=(sudo)
fi

echo "setup: installing ${missing[*]}"
begin=$SECONDS
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
  --no-install-recommends -o Dpkg::Use-Pty=0 "${missing[@]}" >/dev/null
echo "setup: ${#missing[@]} packages and what they need, in $((SECONDS - begin)) s"
