# The one list of what a machine with a GPU is proved with: tools/gpu_check.sh runs
# it, tools/gpu_bundle.sh packs it.  In the build it is the file gpu_parts, a line a
# part: KIND NAME ARGUMENTS...
#
#   program        of the runtime; packed
#   test           a GoogleTest program in tests/; packed
#   bench          in bin/; packed
#   example        in bin/; packed, run as the rank of a job with its ARGUMENTS
#   torch_example  as example, but links LibTorch, whose version is its first
#                  argument; never packed
#   torch_gang     as torch_example, once alone and once as two ranks of one GPU with
#                  half the --batch: their losses must be alike
#
# Tests and benches say "skipped" and why where there is no GPU.  In ARGUMENTS
# {data} is the tree's data/.

# What the target `bundle` builds and `cmake --install --component bundle` installs.
add_custom_target(bundle)
# The examples that are not packed, for tools/gpu_check.sh in a tree.
add_custom_target(gpu_examples)

# cohort_gpu_part(KIND target [ARGUMENTS ...]); nothing where there is no target.
function(cohort_gpu_part kind target)
  cmake_parse_arguments(ARG "" "" "ARGUMENTS" ${ARGN})
  if(NOT TARGET ${target})
    return()
  endif()
  list(JOIN ARG_ARGUMENTS " " arguments)
  if(kind MATCHES "^torch_")
    string(PREPEND arguments "${Torch_VERSION} ")
    add_dependencies(gpu_examples ${target})
  else()
    set(folder bin)
    if(kind STREQUAL "test")
      set(folder tests)
    endif()
    add_dependencies(bundle ${target})
    install(TARGETS ${target} RUNTIME DESTINATION ${folder}
      COMPONENT bundle EXCLUDE_FROM_ALL)
  endif()
  string(STRIP "${kind} $<TARGET_FILE_NAME:${target}> ${arguments}" line)
  set_property(GLOBAL APPEND PROPERTY COHORT_GPU_PARTS "${line}")
endfunction()

# After all parts.
function(cohort_write_gpu_parts)
  # All that a cluster starts: the worker looks for the last two beside itself.
  foreach(program IN ITEMS cohort_command cohort-head cohort-worker cohort-keeper
                           cohort-preflight)
    cohort_gpu_part(program ${program})
  endforeach()
  get_property(parts GLOBAL PROPERTY COHORT_GPU_PARTS)
  list(JOIN parts "\n" text)
  file(GENERATE OUTPUT ${CMAKE_BINARY_DIR}/gpu_parts CONTENT "${text}\n")
  set(bundle COMPONENT bundle EXCLUDE_FROM_ALL)
  install(FILES ${CMAKE_BINARY_DIR}/gpu_parts DESTINATION . ${bundle})
  install(PROGRAMS ${CMAKE_SOURCE_DIR}/tools/bundle_run.sh
    DESTINATION . RENAME run ${bundle})
  install(PROGRAMS ${CMAKE_SOURCE_DIR}/tools/gpu_check.sh
    DESTINATION tools ${bundle})
  install(FILES ${CMAKE_SOURCE_DIR}/examples/ddp/train.py
    DESTINATION examples/ddp ${bundle})
  install(DIRECTORY ${CMAKE_SOURCE_DIR}/data DESTINATION . ${bundle})
  install(FILES ${CMAKE_SOURCE_DIR}/LICENSE DESTINATION . ${bundle})
endfunction()
