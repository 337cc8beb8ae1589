#!/usr/bin/env bash
# torch_wheel_test.sh CMAKE MODULE_DIR: configures projects with directories that look
# like site-packages/torch of wheels, whole and not.
set -euo pipefail
cmake=$1 modules=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
torch=$work/site-packages/torch

cat >"$work/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.25)
project(wheel LANGUAGES NONE)
include(CohortTorchWheel)
if(WITH_GLOO)
  add_library(gloo SHARED IMPORTED)
endif()
cohort_torch_wheel(${COHORT_TORCH_DIR})
message("version ${Torch_VERSION}")
foreach(what IN ITEMS INCLUDE_DIRECTORIES LINK_OPTIONS LINK_LIBRARIES)
  get_target_property(value torch INTERFACE_${what})
  message("${what} ${value}")
endforeach()
END
# whole VERSION: a CPU wheel.
whole() {
  rm -rf "$work/site-packages"
  mkdir -p "$torch"/{lib,include/ATen,include/torch/csrc/api/include/torch}
  printf "debug = False\n__version__ = '%s'\n" "$1" >"$torch/version.py"
  touch "$torch"/lib/lib{torch_cpu,c10}.so "$torch/include/ATen/ATen.h" \
    "$torch/include/torch/csrc/api/include/torch/torch.h"
}
# configure [FLAG...]: its output on one line, and whether it was well.
configure() {
  local status=0
  "$cmake" -S "$work" -B "$work/build" --fresh -DCMAKE_MODULE_PATH="$modules" \
    -DCOHORT_TORCH_DIR="$torch" "$@" >"$work/out" 2>&1 || status=$?
  said=$(tr -s ' \n' '  ' <"$work/out")
  return "$status"
}
fail() {
  echo "FAILED: $*" >&2
  cat "$work/out" >&2
  exit 1
}
takes() {
  configure "${@:2}" || fail "refused"
  [[ $said == *"$1"* ]] || fail "does not say: $1"
}
refuses() {
  ! configure || fail "taken, where it should say: $1"
  [[ $said == *"$1"* ]] || fail "does not say: $1"
}

whole 2.15.0+cpu
takes "version 2.15.0 "
takes "INCLUDE_DIRECTORIES $torch/include;$torch/include/torch/csrc/api/include "
takes "LINK_LIBRARIES -ltorch_cpu;-lc10 "
takes "LINK_OPTIONS -L$torch/lib;-Wl,-rpath,$torch/lib "
takes "--no-as-needed,\$<TARGET_FILE:gloo>,--pop-state;-ltorch_cpu;-lc10 " -DWITH_GLOO=ON
whole 2.7.0
takes "version 2.7.0 "
whole 2.16.0.dev20261101
takes "version 2.16.0 "

touch "$torch/lib/libtorch_cuda.so"
refuses "no libcudart in its lib/ or in nvidia/*/lib beside it: pip install torch==2.16.0"
mkdir -p "$torch"/../nvidia/{cu13,nccl}/lib
touch "$torch/../nvidia/cu13/lib/libcudart.so.13"
takes "--no-as-needed,-ltorch_cuda,--pop-state;-ltorch_cpu;-lc10 "
takes "--no-as-needed,\$<TARGET_FILE:gloo>,-ltorch_cuda,--pop-state;" -DWITH_GLOO=ON
takes "-Wl,-rpath,$work/site-packages/nvidia/nccl/lib;-Wl,-rpath,$torch/lib "

whole 2.6.0+cu124
refuses "is torch 2.6.0; wheels before 2.7 are of another C++ ABI: pip install 'torch>=2.7'"
whole 2.15.0+cpu
rm "$torch/lib/libc10.so"
refuses "lacks lib/libc10.so: it is not the whole of a torch wheel: pip install"
echo "version = 1" >"$torch/version.py"
refuses "does not tell the version"
rm "$torch/version.py"
refuses "holds no version.py and so no torch wheel: name what"
echo "torch_wheel_test: ok"
