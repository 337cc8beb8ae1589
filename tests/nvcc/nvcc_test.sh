#!/usr/bin/env bash
# nvcc_test.sh CMAKE MODULE_DIR: configures a project with programs that are nvcc to
# it: one that works, some that do not, and none.
set -euo pipefail
cmake=$1 modules=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset CUDACXX

cat >"$work/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.25)
project(kernels LANGUAGES CXX)
include(CohortCuda)
message("have ${COHORT_HAVE_CUDA_KERNELS}")
END
# compiler NAME: an nvcc that does as its input says, for --version and else.
compiler() {
  mkdir -p "$work/$1"
  { echo '#!/bin/sh'; cat; } >"$work/$1/nvcc"
  chmod +x "$work/$1/nvcc"
}
compiler good <<'END'
echo "Cuda compilation tools, release 12.4, V12.4.99"
END
compiler other <<'END'
echo "Cuda compilation tools, release 13.0, V13.0.88"
END
compiler broken <<'END'
echo "libnvvm is missing" >&2
exit 1
END
# As one of a toolkit that does not know this g++.
compiler strict <<'END'
case $1 in
  --version) echo "release 12.0" ;;
  *) echo "unsupported GNU version!"; exit 1 ;;
esac
END
# configure [NAME=VALUE...] [FLAG...]: its output on one line, and whether it was well.
fresh=--fresh
configure() {
  local status=0 environment=()
  while (($#)) && [[ $1 != -* ]]; do environment+=("$1") && shift; done
  env "${environment[@]}" "$cmake" -G Ninja -S "$work" -B "$work/build" $fresh \
    -DCMAKE_MODULE_PATH="$modules" "$@" >"$work/out" 2>&1 || status=$?
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
# Configured, without kernels.
leaves() {
  takes "$@"
  [[ $said == *"have OFF"* ]] || fail "there are kernels"
}
refuses() {
  ! configure "${@:2}" || fail "taken, where it should say: $1"
  [[ $said == *"$1"* ]] || fail "does not say: $1"
}

takes "kernels are built by $work/good/nvcc 12.4" PATH="$work/good:$PATH"
takes "kernels are built by $work/good/nvcc 12.4" CUDACXX="$work/good/nvcc"
# By a name that PATH has; and it goes before whatever nvcc comes first there.
ln -s nvcc "$work/good/nvcc-12"
takes "kernels are built by $work/good/nvcc-12 12.4" CUDACXX=nvcc-12 \
  PATH="$work/other:$work/good:$PATH" -DCOHORT_WITH_CUDA=ON
# A build keeps what it took until it is told otherwise.
fresh=
takes "kernels are built by $work/good/nvcc-12 12.4" PATH="$work/other:$PATH"
takes "kernels are built by $work/other/nvcc 13.0" CUDACXX="$work/other/nvcc"
takes "kernels are built by $work/other/nvcc 13.0"
fresh=--fresh

# None stands in for one that was named.
refuses "there is no program CUDACXX=/no/such" CUDACXX=/no/such \
  PATH="$work/good:$PATH" -DCOHORT_WITH_CUDA=ON
leaves "there is no program CUDACXX=/no/such" CUDACXX=/no/such PATH="$work/good:$PATH"
for path in broken:"libnvvm is missing" strict:"unsupported GNU version!"; do
  why=${path#*:} path=$work/${path%%:*}
  refuses "$why" CUDACXX="$path/nvcc" -DCOHORT_WITH_CUDA=ON
  leaves "$path/nvcc" PATH="$path:$PATH"
  [[ $said == *"no CUDA kernels, ranks cannot share a GPU"*"$why"* ]] || fail "no reason"
done
leaves "COHORT_WITH_CUDA=OFF" CUDACXX="$work/good/nvcc" -DCOHORT_WITH_CUDA=OFF
refuses "is AUTO, ON or OFF, not maybe" -DCOHORT_WITH_CUDA=maybe
echo "nvcc_test: ok"
