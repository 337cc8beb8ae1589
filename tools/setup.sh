#!/usr/bin/env bash
# Installs the packages that cohort builds and tests with, on Debian 12 or 13.
#
#   tools/setup.sh          what the release build, all tests and the demo need
#   tools/setup.sh --dev    and clang, lld, sanitizers, clang-format, clang-tidy
#                           and shellcheck (.ci/run, tools/check.sh)
#   tools/setup.sh --bench  and the peers that benches measure beside
#   tools/setup.sh --cuda   and nvcc, which builds the CUDA kernels, and NCCL, which
#                           GPU jobs load: the system's, or else NVIDIA's wheels
#                           from PyPI, into build/cuda-toolkit (0.4 GB to load)
#   tools/setup.sh --print  the package names only, installs nothing
#
# As root, or by sudo.  When everything is there it asks no package server.  Debian's
# fake NVML, which one test reads as it reads the real one, goes to build/pcp-testsuite.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

dev=0
bench=0
cuda=0
print=0
for arg in "$@"; do
  case $arg in
    --dev) dev=1 ;;
    --bench) bench=1 ;;
    --cuda) cuda=1 ;;
    --print) print=1 ;;
    *)
      sed -n '2,14s/^# \{0,1\}//p' "$0" >&2
      exit 2
      ;;
  esac
done

# As cmake/CohortCuda.cmake looks for it.
has_nvcc() {
  if [[ -n ${CUDACXX:-} ]]; then
    command -v "$CUDACXX" >/dev/null && return
    echo "setup: there is no program CUDACXX=$CUDACXX, and none is taken instead:" \
      "unset it, or name another" >&2
    exit 2
  fi
  command -v nvcc >/dev/null || [[ -x /usr/local/cuda/bin/nvcc ]] ||
    compgen -G "$toolkit/nvidia/cu*/bin/nvcc" >/dev/null
}

# As trainer/comm/nccl_library looks for it, or put here by an earlier call.
has_nccl() {
  [[ -n ${COHORT_NCCL_LIBRARY:-} ]] ||
    ldconfig -p 2>/dev/null | grep 'libnccl\.so\.2' >/dev/null ||
    [[ -e $toolkit_nccl ]]
}

as_root() {
  if ((EUID == 0)); then "$@"; else sudo "$@"; fi
}

install_packages() {
  local begin=$SECONDS
  ((EUID == 0)) || command -v sudo >/dev/null || {
    echo "setup: run as root, or install sudo; missing: $*" >&2
    exit 125
  }
  echo "setup: installing $*"
  as_root apt-get update -qq
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
    --no-install-recommends -o Dpkg::Use-Pty=0 "$@" >/dev/null
  echo "setup: $# packages and what they need, in $((SECONDS - begin)) s"
}

# Two files out of packages that would bring daemons and Qt along: the library, and
# the libpcp that it links.  No test but one needs them.
load_fake_nvml() {
  local begin=$SECONDS scratch to=$PWD/$fake_nvml
  scratch=$(mktemp -d)
  if (
    cd "$scratch" &&
      { apt-cache show pcp-testsuite >/dev/null 2>&1 || as_root apt-get update -qq; } &&
      libpcp=$(apt-cache depends pcp-testsuite |
        sed -nE 's/^ *Depends: (libpcp[0-9][a-z0-9]*)$/\1/p' | head -n 1) &&
      apt-get download -qq pcp-testsuite "$libpcp" 2>/dev/null &&
      for deb in *.deb; do dpkg-deb -x "$deb" . || exit; done &&
      mkdir -p "$to" &&
      find . -name 'libpcp.so.*' -exec cp -P {} "$to" ';' &&
      cp var/lib/pcp/testsuite/src/libnvidia-ml.so "$to"
  ); then
    echo "setup: Debian's fake NVML, in $((SECONDS - begin)) s"
  else
    echo "setup: no package pcp-testsuite to load: the tests of its fake NVML are skipped" >&2
  fi
  rm -rf "$scratch"
}

install_wheels() {
  local begin=$SECONDS
  echo "setup: loading $* into $toolkit"
  /usr/bin/python3 -m pip install --quiet --no-deps --upgrade \
    --disable-pip-version-check --root-user-action ignore \
    --target "$toolkit" "$@"
  echo "setup: $# wheels, in $((SECONDS - begin)) s"
}

readonly fake_nvml=build/pcp-testsuite
readonly toolkit=build/cuda-toolkit
readonly toolkit_nccl=$toolkit/nvidia/nccl/lib/libnccl.so.2
packages=(
  # The build.
  g++ cmake ninja-build git
  # RPC and the wire.
  libgrpc++-dev libgrpc-dev protobuf-compiler protobuf-compiler-grpc
  libprotobuf-dev libabsl-dev libre2-dev libc-ares-dev libssl-dev zlib1g-dev
  # The head's store; the CLI.
  librocksdb-dev libcli11-dev nlohmann-json3-dev libyaml-cpp-dev
  # The head's metrics, and its HTTP server.
  prometheus-cpp-dev libboost-dev
  # Training.  OpenBLAS by name: libtorch is content with any libblas.so.3, and
  # the reference one is 20 times slower.
  libtorch-dev libgloo-dev libopenblas0-pthread
  # The tests.
  libgtest-dev libgmock-dev libarchive-dev python3 python3-torch python3-numpy
  python3-prometheus-client elfutils tmux
)
if ((dev)); then
  # The meta packages: clang 14 on Debian 12, clang 19 on Debian 13.  lld links
  # the two hundred tests of a sanitizer four times as fast.
  packages+=(clang lld libclang-rt-dev clang-format clang-tidy shellcheck)
fi
if ((bench)); then
  packages+=(etcd-server)
fi

# nvcc 13.x and its parts, and the NCCL built for the same major.  cccl is not a
# dependency of theirs, and cuda_fp16.h includes it.
toolkit_wheels=(
  "nvidia-cuda-nvcc==13.*" "nvidia-cuda-crt==13.*" "nvidia-cuda-runtime==13.*"
  "nvidia-nvvm==13.*" "nvidia-cuda-cccl==13.*"
)
nccl_wheels=("nvidia-nccl-cu13>=2.28")
wheels=()
if ((cuda)); then
  if ! has_nvcc; then wheels+=("${toolkit_wheels[@]}"); fi
  if ! has_nccl; then wheels+=("${nccl_wheels[@]}"); fi
  if ((${#wheels[@]})); then packages+=(python3-pip); fi
fi

if ((print)); then
  printf '%s\n' "${packages[@]}"
  exit 0
fi

if [[ ! -r /etc/debian_version ]] || ! command -v apt-get >/dev/null; then
  echo "setup: this script knows Debian 12 and 13; install packages like these:" >&2
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
else
  install_packages "${missing[@]}"
fi
if [[ ! -e /var/lib/pcp/testsuite/src/libnvidia-ml.so &&
  ! -e $fake_nvml/libnvidia-ml.so ]]; then
  load_fake_nvml
fi
if ((${#wheels[@]})); then
  install_wheels "${wheels[@]}"
elif ((cuda)); then
  echo "setup: nvcc and NCCL are there"
fi
# The one that no loader finds by itself.
if ((cuda)) && [[ -z ${COHORT_NCCL_LIBRARY:-} && -e $toolkit_nccl ]] &&
  ! ldconfig -p 2>/dev/null | grep 'libnccl\.so\.2' >/dev/null; then
  echo "setup: for GPU jobs: start workers with COHORT_NCCL_LIBRARY=$PWD/$toolkit_nccl"
fi
