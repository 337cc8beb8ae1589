#!/usr/bin/env bash
# torch_wheel_test.sh CMAKE MODULE_DIR: configures projects with directories that look
# like site-packages/torch of wheels, whole and not, and somebody else's project with
# what cohort would install of itself when it was built against one.
set -euo pipefail
cmake=$1 modules=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
torch=$work/site-packages/torch

mkdir "$work"/{wheel,package,consumer}
cat >"$work/wheel/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.25)
project(wheel LANGUAGES NONE)
include(CohortTorchWheel)
if(WITH_GLOO)
  add_library(gloo SHARED IMPORTED)
endif()
cohort_torch_wheel(${COHORT_TORCH_DIR} reason)
if(reason)
  message(FATAL_ERROR "${reason}")
endif()
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
# configure PROJECT [FLAG...]: its output on one line, and whether it was well.
configure() {
  local status=0
  "$cmake" -G Ninja -S "$work/$1" -B "$work/$1/build" --fresh -DCMAKE_MODULE_PATH="$modules" \
    "${@:2}" >"$work/out" 2>&1 || status=$?
  said=$(tr -s ' \n' '  ' <"$work/out")
  return "$status"
}
fail() {
  echo "FAILED: $*" >&2
  cat "$work/out" >&2
  exit 1
}
takes() {
  configure wheel -DCOHORT_TORCH_DIR="$torch" "${@:2}" || fail "refused"
  [[ $said == *"$1"* ]] || fail "does not say: $1"
}
refuses() {
  ! configure wheel -DCOHORT_TORCH_DIR="$torch" || fail "taken, where it should say: $1"
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

# What is installed, over packages that need no system.
prefix=$work/prefix
mkdir -p "$prefix"
for package in Threads Protobuf absl gRPC OpenSSL nlohmann_json Torch; do
  echo >"$prefix/${package}Config.cmake"
done
echo 'set(Torch_VERSION 1.13.1)' >"$prefix/TorchConfig.cmake"
cat >"$work/package/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.25)
project(package LANGUAGES NONE)
include(CMakePackageConfigHelpers)
set(COHORT_HAVE_GLOO OFF)
configure_package_config_file(${CMAKE_MODULE_PATH}/cohortConfig.cmake.in
  ${PREFIX}/cohortConfig.cmake INSTALL_DESTINATION lib/cmake/cohort)
file(COPY ${CMAKE_MODULE_PATH}/CohortTorchWheel.cmake DESTINATION ${PREFIX})
file(WRITE ${PREFIX}/cohortTargets.cmake "")
file(WRITE ${PREFIX}/cohortTorchTargets.cmake
  "add_library(cohort::torch INTERFACE IMPORTED)")
END
cat >"$work/consumer/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.25)
project(consumer LANGUAGES NONE)
find_package(cohort ${HOW} torch)
message("cohort ${cohort_FOUND} torch ${cohort_torch_FOUND}")
if(TARGET cohort::torch)
  message("with cohort::torch")
endif()
END
# built HAVE_TORCH [DIR [VERSION]]: what cohort was built against.
built() {
  configure package -DPREFIX="$prefix" -DCOHORT_HAVE_TORCH="$1" \
    -DCOHORT_TORCH_DIR="${2-}" -DTorch_VERSION="${3-}" || fail "no package"
}
# finds HOW TEXT [FLAG...], lacks HOW TEXT [FLAG...]: what a project that wants it says.
consume() {
  configure consumer -DCMAKE_PREFIX_PATH="$prefix" -Dcohort_DIR="$prefix" \
    -DCMAKE_FIND_PACKAGE_PREFER_CONFIG=ON -DHOW="$1" "${@:3}" || return 1
  [[ $said == *"$2"* ]] || fail "does not say: $2"
}
finds() {
  consume "$@" || fail "not found"
  [[ $said == *"with cohort::torch"* ]] || fail "no cohort::torch"
}
lacks() {
  ! consume "REQUIRED;COMPONENTS" "" "${@:2}" || fail "found, where it should say: $1"
  [[ $said == *"$1"* ]] || fail "does not say: $1"
  consume "OPTIONAL_COMPONENTS" "-- no cohort::torch: " "${@:2}" || fail "not optional"
  [[ $said == *"$1"*"cohort 1 torch FALSE"* ]] || fail "does not say: $1"
  [[ $said != *"with cohort::torch"* ]] || fail "there is a cohort::torch"
  consume "QUIET;COMPONENTS" "cohort 0 torch FALSE" "${@:2}" || fail "not quiet"
  [[ $said != *"LibTorch"* ]] || fail "not quiet"
}

whole 2.15.0+cpu
built ON "$torch" 2.15.0
finds "REQUIRED;COMPONENTS" "cohort 1 torch TRUE"
finds "OPTIONAL_COMPONENTS" "cohort 1 torch TRUE"
whole 2.14.1
lacks "LibTorch 2.14.1 is found; this cohort was built against LibTorch 2.15.0 and needs"
mv "$work/site-packages" "$work/moved"
lacks "holds no version.py and so no torch wheel: name what"
lacks "holds no version.py" -DCOHORT_TORCH_DIR="$work/nowhere"
torch=$work/moved/torch
lacks "LibTorch 2.14.1 is found" -DCOHORT_TORCH_DIR="$torch"
echo "__version__ = '2.15.0+cu130'" >"$torch/version.py"
finds "REQUIRED;COMPONENTS" "cohort 1 torch TRUE" -DCOHORT_TORCH_DIR="$torch"
built ON "" 1.13.1
finds "REQUIRED;COMPONENTS" "cohort 1 torch TRUE"
built ON "" 2.1.0
lacks "LibTorch 1.13.1 is found; this cohort was built against LibTorch 2.1.0"
echo 'set(Torch_FOUND FALSE)' >"$prefix/TorchConfig.cmake"
lacks "finds no LibTorch; this cohort was built against LibTorch 2.1.0"
built OFF
lacks "this cohort was built without LibTorch"
echo "torch_wheel_test: ok"
