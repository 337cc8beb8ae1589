# CUDA kernels.  Nothing here is needed to build or to run: GPUs are found through
# NVML, the driver and NCCL, all opened at run time.  nvcc makes the few kernels of
# our own; they are carried inside the programs and loaded by the driver.
#
# nvcc comes from CUDACXX, which none other stands in for; else from PATH,
# /usr/local/cuda, or where `tools/setup.sh --cuda` puts it.  No CUDA language and no
# find_package(CUDAToolkit): the wheels' toolkit lacks what that module insists on.

set(COHORT_WITH_CUDA AUTO CACHE STRING
  "Build the CUDA kernels: AUTO (when nvcc is found), ON, OFF")
set_property(CACHE COHORT_WITH_CUDA PROPERTY STRINGS AUTO ON OFF)
if(NOT COHORT_WITH_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR
    "COHORT_WITH_CUDA is AUTO, ON or OFF, not ${COHORT_WITH_CUDA}")
endif()

# For sm_80 and sm_90, with the PTX of both for what comes later.  -fmad=false: the
# same bits as on a CPU.
set(COHORT_NVCC_FLAGS -std=c++17 -fatbin -fmad=false
  -gencode arch=compute_80,code=[sm_80,compute_80]
  -gencode arch=compute_90,code=[sm_90,compute_90])

# cohort_try_nvcc(OUT SAYS ARGUMENT...): empty, or how it failed; and its words.
function(cohort_try_nvcc out says)
  execute_process(COMMAND ${COHORT_NVCC} ${ARGN}
    OUTPUT_VARIABLE words ERROR_VARIABLE words RESULT_VARIABLE result)
  set(failure)
  if(NOT result STREQUAL "0")
    list(JOIN ARGN " " arguments)
    string(STRIP "${words}" why)
    set(failure "${COHORT_NVCC} ${arguments} failed (${result}): ${why}")
  endif()
  set(${out} "${failure}" PARENT_SCOPE)
  set(${says} "${words}" PARENT_SCOPE)
endfunction()

# cohort_find_nvcc(OUT): sets COHORT_NVCC and its COHORT_NVCC_VERSION; in OUT why there
# is none that works, else nothing.
function(cohort_find_nvcc out)
  if(NOT "$ENV{CUDACXX}" STREQUAL "")
    # Also instead of what an earlier configuration found.
    find_program(named NAMES $ENV{CUDACXX} NO_CACHE)
    set(COHORT_NVCC ${named} CACHE FILEPATH "The CUDA compiler" FORCE)
    set(missing "there is no program CUDACXX=$ENV{CUDACXX}")
  else()
    file(GLOB wheel_bin LIST_DIRECTORIES ON
      ${CMAKE_SOURCE_DIR}/build/cuda-toolkit/nvidia/cu*/bin)
    find_program(COHORT_NVCC NAMES nvcc PATHS /usr/local/cuda/bin ${wheel_bin}
      DOC "The CUDA compiler")
    set(missing "there is no nvcc in PATH or /usr/local/cuda: run tools/setup.sh --cuda")
  endif()
  mark_as_advanced(COHORT_NVCC)
  if(NOT COHORT_NVCC)
    set(${out} "${missing}" PARENT_SCOPE)
    return()
  endif()
  cohort_try_nvcc(failure says --version)
  string(REGEX MATCH "release ([0-9.]+)" release "${says}")
  set(version "${CMAKE_MATCH_1}")
  # It may know no such GPUs, or not this g++.  Asked once.
  set(known "${COHORT_NVCC} ${version}")
  if(failure STREQUAL "" AND NOT COHORT_NVCC_WORKS STREQUAL known)
    set(tried ${CMAKE_BINARY_DIR}/cohort_nvcc)
    file(WRITE ${tried}.cu "extern \"C\" __global__ void Try(int *x) { *x = 1; }\n")
    cohort_try_nvcc(failure says ${COHORT_NVCC_FLAGS} -o ${tried}.fatbin ${tried}.cu)
  endif()
  if(NOT failure STREQUAL "")
    set(${out} "${failure}" PARENT_SCOPE)
    return()
  endif()
  set(COHORT_NVCC_WORKS ${known} CACHE INTERNAL "The nvcc that has compiled a kernel")
  set(COHORT_NVCC_VERSION ${version} PARENT_SCOPE)
  set(${out} "" PARENT_SCOPE)
endfunction()

set(COHORT_HAVE_CUDA_KERNELS OFF)
if(COHORT_WITH_CUDA STREQUAL "OFF")
  message(STATUS "cohort: CUDA kernels off (COHORT_WITH_CUDA=OFF): ranks cannot share a GPU")
else()
  cohort_find_nvcc(no_nvcc)
  if(no_nvcc STREQUAL "")
    set(COHORT_HAVE_CUDA_KERNELS ON)
    message(STATUS "cohort: CUDA kernels are built by ${COHORT_NVCC} "
      "${COHORT_NVCC_VERSION}, for drivers of that CUDA and newer")
  elseif(COHORT_WITH_CUDA STREQUAL "ON")
    message(FATAL_ERROR "COHORT_WITH_CUDA=ON and ${no_nvcc}\n"
      "Name another compiler with CUDACXX, or build without: -DCOHORT_WITH_CUDA=OFF")
  else()
    message(STATUS "cohort: no CUDA kernels, ranks cannot share a GPU: ${no_nvcc}")
  endif()
endif()
if(COHORT_HAVE_CUDA_KERNELS)
  # The one that knows the flags which it is given: Clang's are not gcc's.
  set(CMAKE_ASM_COMPILER ${CMAKE_CXX_COMPILER})
  enable_language(ASM)
endif()

# cohort_kernels(TARGET target SOURCE x.cu): compiles the kernels of x.cu and adds them
# to `target` as the bytes from cohort_x_kernels to cohort_x_kernels_end.
function(cohort_kernels)
  cmake_parse_arguments(ARG "" "TARGET;SOURCE" "" ${ARGN})
  get_filename_component(stem ${ARG_SOURCE} NAME_WE)
  set(image ${CMAKE_CURRENT_BINARY_DIR}/${stem}.fatbin)
  add_custom_command(OUTPUT ${image}
    COMMAND ${COHORT_NVCC} ${COHORT_NVCC_FLAGS} -I${CMAKE_SOURCE_DIR} -MD
            -MF ${image}.d -o ${image} ${CMAKE_CURRENT_SOURCE_DIR}/${ARG_SOURCE}
    DEPENDS ${ARG_SOURCE} DEPFILE ${image}.d
    COMMENT "Compiling CUDA kernels ${stem}.cu" VERBATIM)
  set(carrier ${CMAKE_CURRENT_BINARY_DIR}/${stem}_kernels.S)
  file(CONFIGURE OUTPUT ${carrier} @ONLY CONTENT [[
  .section .rodata
  .balign 16
  .globl cohort_@stem@_kernels
cohort_@stem@_kernels:
  .incbin "@image@"
  .globl cohort_@stem@_kernels_end
cohort_@stem@_kernels_end:
  .byte 0
  .section .note.GNU-stack, "", %progbits
]])
  set_source_files_properties(${carrier} PROPERTIES OBJECT_DEPENDS ${image})
  target_sources(${ARG_TARGET} PRIVATE ${carrier})
endfunction()
