# CUDA kernels.  Nothing here is needed to build or to run: GPUs are found through
# NVML, the driver and NCCL, all opened at run time.  nvcc makes the few kernels of
# our own; they are carried inside the programs and loaded by the driver.
#
# nvcc comes from CUDACXX, PATH, /usr/local/cuda, or from where `tools/setup.sh
# --cuda` puts it.  No CUDA language and no find_package(CUDAToolkit): the wheels'
# toolkit lacks what that module insists on.

set(COHORT_WITH_CUDA AUTO CACHE STRING
  "Build the CUDA kernels: AUTO (when nvcc is found), ON, OFF")
set_property(CACHE COHORT_WITH_CUDA PROPERTY STRINGS AUTO ON OFF)
if(NOT COHORT_WITH_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR
    "COHORT_WITH_CUDA is AUTO, ON or OFF, not ${COHORT_WITH_CUDA}")
endif()

set(COHORT_HAVE_CUDA_KERNELS OFF)
if(COHORT_WITH_CUDA STREQUAL "OFF")
  message(STATUS "cohort: CUDA kernels off (COHORT_WITH_CUDA=OFF): ranks cannot share a GPU")
else()
  file(GLOB wheel_bin LIST_DIRECTORIES ON
    ${CMAKE_SOURCE_DIR}/build/cuda-toolkit/nvidia/cu*/bin)
  find_program(COHORT_NVCC NAMES $ENV{CUDACXX} nvcc
    PATHS /usr/local/cuda/bin ${wheel_bin})
  mark_as_advanced(COHORT_NVCC)
  if(COHORT_NVCC)
    execute_process(COMMAND ${COHORT_NVCC} --version
      OUTPUT_VARIABLE nvcc_says ERROR_VARIABLE nvcc_says RESULT_VARIABLE nvcc_failed)
    if(nvcc_failed OR NOT nvcc_says MATCHES "release ([0-9.]+)")
      message(FATAL_ERROR "${COHORT_NVCC} --version failed: ${nvcc_says}\n"
        "Name another with CUDACXX, or build without: -DCOHORT_WITH_CUDA=OFF")
    endif()
    set(COHORT_HAVE_CUDA_KERNELS ON)
    message(STATUS "cohort: CUDA kernels are built by ${COHORT_NVCC} ${CMAKE_MATCH_1}")
  elseif(COHORT_WITH_CUDA STREQUAL "ON")
    message(FATAL_ERROR "COHORT_WITH_CUDA=ON and no nvcc in CUDACXX, PATH or "
      "/usr/local/cuda: run tools/setup.sh --cuda")
  else()
    message(STATUS "cohort: no nvcc (tools/setup.sh --cuda): no CUDA kernels, ranks cannot share a GPU")
  endif()
endif()
if(COHORT_HAVE_CUDA_KERNELS)
  # The one that knows the flags which it is given: Clang's are not gcc's.
  set(CMAKE_ASM_COMPILER ${CMAKE_CXX_COMPILER})
  enable_language(ASM)
endif()

# cohort_kernels(TARGET target SOURCE x.cu): compiles the kernels of x.cu for sm_80
# and sm_90, with the PTX of both for what comes later, and adds them to `target` as
# the bytes from cohort_x_kernels to cohort_x_kernels_end.
function(cohort_kernels)
  cmake_parse_arguments(ARG "" "TARGET;SOURCE" "" ${ARGN})
  get_filename_component(stem ${ARG_SOURCE} NAME_WE)
  set(image ${CMAKE_CURRENT_BINARY_DIR}/${stem}.fatbin)
  # -fmad=false: the same bits as on a CPU.
  add_custom_command(OUTPUT ${image}
    COMMAND ${COHORT_NVCC} -std=c++17 -fatbin -fmad=false
            -gencode arch=compute_80,code=[sm_80,compute_80]
            -gencode arch=compute_90,code=[sm_90,compute_90]
            -I${CMAKE_SOURCE_DIR} -MD -MF ${image}.d -o ${image}
            ${CMAKE_CURRENT_SOURCE_DIR}/${ARG_SOURCE}
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
