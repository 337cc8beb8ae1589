# cohort_library, cohort_executable, cohort_test, cohort_script_test, cohort_proto:
# one target a cohesive group, so that link dependencies repeat the layering of
# docs/architecture.md.  None of them names gRPC, protobuf, Abseil, RocksDB or
# OpenSSL in DEPS: see cohort_deps_shared.

include(GoogleTest)

add_library(cohort_flags INTERFACE)
target_include_directories(cohort_flags INTERFACE ${CMAKE_SOURCE_DIR})
# g++ would have designated initialisers name every member, and at -O2 it takes
# the moved-from state of an AnyInvocable or optional for uninitialised.
target_compile_options(cohort_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor
  -Wno-missing-field-initializers
  $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>
  -ffunction-sections -fdata-sections
  $<$<CXX_COMPILER_ID:Clang>:-Wthread-safety>
  $<$<CXX_COMPILER_ID:Clang>:-Wthread-safety-beta>
  $<$<BOOL:${COHORT_WERROR}>:-Werror>)
set(COHORT_SANITIZE_FLAGS)
if(COHORT_SANITIZE)
  # A report of UBSan ends the test, as one of ASan does.
  set(COHORT_SANITIZE_FLAGS -fsanitize=${COHORT_SANITIZE}
    -fno-sanitize-recover=all -fno-omit-frame-pointer)
  # ASan finds what these would, and they take a quarter of the time to compile.
  if(COHORT_SANITIZE MATCHES "undefined")
    list(APPEND COHORT_SANITIZE_FLAGS -fno-sanitize=null,object-size,vptr)
  endif()
  target_compile_options(cohort_flags INTERFACE ${COHORT_SANITIZE_FLAGS})
  target_link_options(cohort_flags INTERFACE -fsanitize=${COHORT_SANITIZE})
endif()

# With COHORT_PRECOMPILE: what most of our files read of other people's headers is
# parsed once, for libraries and programs (cohort_headers) and for tests
# (cohort_test_headers).  A compiler cache and precompiled headers get in each
# other's way: with a launcher there are none.
if(COHORT_PRECOMPILE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(COHORT_PRECOMPILE_HEADERS ON)
endif()
set(COHORT_COMMON_HEADERS
  <algorithm> <cstdint> <functional> <map> <memory> <optional> <set> <string>
  <utility> <vector> <absl/functional/any_invocable.h> <absl/status/statusor.h>
  <absl/strings/str_cat.h> <absl/strings/string_view.h> <absl/time/time.h>)
# Tests are run once and compiled each time: they are not worth optimising, what
# they call is.
set(COHORT_TEST_FLAGS -O0)

# cohort_precompiled(NAME n HEADERS ... [DEPS ...] [OPTIONS ...])
function(cohort_precompiled)
  cmake_parse_arguments(ARG "" "NAME" "HEADERS;DEPS;OPTIONS" ${ARGN})
  if(NOT COHORT_PRECOMPILE_HEADERS)
    return()
  endif()
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/gen/${ARG_NAME}.cc
       CONTENT "// Only there for its precompiled headers.\n")
  add_library(${ARG_NAME} OBJECT ${CMAKE_BINARY_DIR}/gen/${ARG_NAME}.cc)
  target_link_libraries(${ARG_NAME} PRIVATE cohort_flags ${ARG_DEPS})
  target_compile_options(${ARG_NAME} PRIVATE ${ARG_OPTIONS})
  target_precompile_headers(${ARG_NAME} PRIVATE ${ARG_HEADERS})
endfunction()
cohort_precompiled(NAME cohort_headers HEADERS ${COHORT_COMMON_HEADERS})
if(COHORT_BUILD_TESTS)
  cohort_precompiled(NAME cohort_test_headers
    HEADERS ${COHORT_COMMON_HEADERS} <gmock/gmock.h> <gtest/gtest.h>
    DEPS GTest::gmock GTest::gtest OPTIONS ${COHORT_TEST_FLAGS})
endif()

# Describing flags to CLI11 takes a compiler longest of all, and twice as long again
# when it is optimised, for what runs once a program.  Not for daemons: of an inline
# function a linker takes the first copy that it meets, so that one object like this
# slows all of its program, down to the archives.
set(COHORT_COMMAND_LINE_FLAGS -O0)
cohort_precompiled(NAME cohort_cli_headers
  HEADERS ${COHORT_COMMON_HEADERS} <CLI/CLI.hpp> DEPS CLI11::CLI11
  OPTIONS ${COHORT_COMMAND_LINE_FLAGS})

# What reads LibTorch's headers is compiled with other definitions.
function(cohort_reuse_headers target headers)
  if(COHORT_PRECOMPILE_HEADERS AND NOT COHORT_OWN_DEFINITIONS)
    target_precompile_headers(${target} REUSE_FROM ${headers})
  endif()
endfunction()

# With COHORT_UNITY the files of a target are compiled in groups: most of a file's time
# goes into the headers that all of them read.  A name of an anonymous namespace has to be
# unique within its folder.  Few in a group, so that both cores of a small machine have
# work and an edit costs seconds.
function(cohort_unity target)
  if(COHORT_UNITY)
    set_target_properties(${target} PROPERTIES
      UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 24)
    # g++ takes what a group includes for headers.
    target_compile_options(${target} PRIVATE
      $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
  endif()
endfunction()

# Tests are linked once and run once: by the quickest linker that is there.
find_program(COHORT_QUICK_LINKER NAMES ld.lld ld.gold)
mark_as_advanced(COHORT_QUICK_LINKER)
if(COHORT_QUICK_LINKER MATCHES "ld\\.(lld|gold)$")
  set(COHORT_TEST_LINKER -fuse-ld=${CMAKE_MATCH_1})
endif()

# What the sanitizer stages of .ci/run build.
add_custom_target(unit_and_sim_tests)

# cohort_library(NAME n [SRCS ...] [HDRS ...] [DEPS ...] [COMMAND_LINE])
# COMMAND_LINE: it is about flags and commands, and part of no daemon.
function(cohort_library)
  cmake_parse_arguments(ARG "COMMAND_LINE" "NAME" "SRCS;HDRS;DEPS" ${ARGN})
  set(precompiled cohort_headers)
  if(ARG_COMMAND_LINE)
    set(precompiled cohort_cli_headers)
    list(APPEND ARG_DEPS CLI11::CLI11)
  endif()
  if(ARG_SRCS)
    add_library(${ARG_NAME} STATIC ${ARG_SRCS} ${ARG_HDRS})
    target_link_libraries(${ARG_NAME} PUBLIC cohort_flags ${ARG_DEPS})
    if(ARG_COMMAND_LINE)
      target_compile_options(${ARG_NAME} PRIVATE ${COHORT_COMMAND_LINE_FLAGS})
    endif()
    cohort_reuse_headers(${ARG_NAME} ${precompiled})
    cohort_unity(${ARG_NAME})
    if(COHORT_BENCHES)
      set_target_properties(${ARG_NAME} PROPERTIES EXCLUDE_FROM_ALL ON)
    endif()
  else()
    add_library(${ARG_NAME} INTERFACE)
    target_link_libraries(${ARG_NAME} INTERFACE cohort_flags ${ARG_DEPS})
  endif()
  cohort_note_library(${ARG_NAME} "${ARG_SRCS}" "${ARG_DEPS}")
endfunction()

# For libraries that read LibTorch's headers: they take most of a file's time, and
# are parsed once for all files of the library.
function(cohort_compile_as_one target)
  set_target_properties(${target} PROPERTIES
    UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 0)
endfunction()

# Remembers a library of ours for cmake/CohortInstall.cmake.
function(cohort_note_library name sources deps)
  set_property(GLOBAL APPEND PROPERTY COHORT_LIBRARIES ${name})
  set_property(GLOBAL PROPERTY COHORT_${name}_DEPS ${deps})
  if(sources)
    set_property(GLOBAL PROPERTY COHORT_${name}_HAS_OBJECTS ON)
  endif()
endfunction()

# cohort_executable(NAME n SRCS ... [DEPS ...] [SHARED] [BARE] [MIXED])
# SHARED: always the shared gRPC, protobuf and Abseil (what links LibTorch must).
# BARE: none of them at all.
# MIXED: archives of them and the shared libstdc++, for what needs a C++ library
# that Debian has as a shared object only.
function(cohort_executable)
  cmake_parse_arguments(ARG "SHARED;BARE;MIXED" "NAME" "SRCS;DEPS" ${ARGN})
  add_executable(${ARG_NAME} ${ARG_SRCS})
  target_link_libraries(${ARG_NAME} PRIVATE cohort_flags ${ARG_DEPS})
  cohort_reuse_headers(${ARG_NAME} cohort_headers)
  set(kind SHARED)
  if(ARG_BARE)
    set(kind BARE)
    if(COHORT_STATIC_DEPS)
      target_link_options(${ARG_NAME} PRIVATE -static-libstdc++ -static-libgcc
        -Wl,--gc-sections)
    endif()
  elseif(TARGET cohort_deps_static AND NOT ARG_SHARED)
    set(kind STATIC)
    target_link_libraries(${ARG_NAME} PRIVATE cohort_deps_static)
    if(ARG_MIXED)
      set(kind MIXED)
      # Its shared objects may come along (tools/gpu_bundle.sh).  An RPATH, since a
      # RUNPATH does not count for what those need in turn.
      # In the build tree, too: else CMake keeps its place there by empty entries,
      # which are the directory that the program is started in.
      set_target_properties(${ARG_NAME} PROPERTIES INSTALL_RPATH "$ORIGIN/../lib"
        INSTALL_RPATH_USE_LINK_PATH ON BUILD_WITH_INSTALL_RPATH ON)
      target_link_options(${ARG_NAME} PRIVATE -Wl,--disable-new-dtags)
    else()
      target_link_options(${ARG_NAME} PRIVATE -static-libstdc++ -static-libgcc)
    endif()
  else()
    target_link_libraries(${ARG_NAME} PRIVATE cohort_deps_shared)
  endif()
  if(COHORT_BENCHES)
    set_target_properties(${ARG_NAME} PROPERTIES EXCLUDE_FROM_ALL ON)
    add_dependencies(benches ${ARG_NAME})
  else()
    # For the test that reads ldd and nm of each (tests/linkage), and to install.
    set_property(GLOBAL APPEND PROPERTY COHORT_${kind}_PROGRAMS ${ARG_NAME})
  endif()
endfunction()

# cohort_test(NAME x_test SRCS ... [DEPS ...] [LABELS unit|sim|integration|gpu...]
#             [TIMEOUT seconds] [WHOLE] [SERIAL] [RESOURCE_LOCK name] [STATIC]
#             [ONE_THREAD] [ALONE x_test.cc ...])
# Each TEST is a ctest of its own, named x_test.Suite.Case; with WHOLE the program
# is one ctest (where SetUpTestSuite costs more than the tests).
# ALONE: what has names that others of SRCS have, in spite of COHORT_UNITY.
# SERIAL: no other test runs beside it.  RESOURCE_LOCK: no two tests with the same
# one run at once.  STATIC: linked as programs are, for other machines.
# ONE_THREAD: it starts no thread, so it is left out under ThreadSanitizer.
function(cohort_test)
  if(NOT COHORT_BUILD_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "WHOLE;SERIAL;STATIC;ONE_THREAD" "NAME;TIMEOUT;RESOURCE_LOCK"
    "SRCS;DEPS;LABELS;ALONE" ${ARGN})
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 60)
  endif()
  add_executable(${ARG_NAME} ${ARG_SRCS})
  set_target_properties(${ARG_NAME} PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  set(foreign cohort_deps_shared)
  if(ARG_STATIC AND TARGET cohort_deps_static)
    set(foreign cohort_deps_static)
    target_link_options(${ARG_NAME} PRIVATE -static-libstdc++ -static-libgcc)
  endif()
  target_link_libraries(${ARG_NAME} PRIVATE
    cohort_flags ${ARG_DEPS} GTest::gmock GTest::gtest_main ${foreign})
  target_link_options(${ARG_NAME} PRIVATE ${COHORT_TEST_LINKER})
  target_compile_options(${ARG_NAME} PRIVATE ${COHORT_TEST_FLAGS})
  cohort_reuse_headers(${ARG_NAME} cohort_test_headers)
  cohort_unity(${ARG_NAME})
  set_source_files_properties(${ARG_ALONE} PROPERTIES
    SKIP_UNITY_BUILD_INCLUSION ON)
  if(ARG_ONE_THREAD AND COHORT_SANITIZE STREQUAL "thread")
    set_target_properties(${ARG_NAME} PROPERTIES EXCLUDE_FROM_ALL ON)
    return()
  endif()
  if("unit" IN_LIST ARG_LABELS OR "sim" IN_LIST ARG_LABELS)
    add_dependencies(unit_and_sim_tests ${ARG_NAME})
  endif()
  set(properties TIMEOUT ${ARG_TIMEOUT})
  if(ARG_RESOURCE_LOCK)
    list(APPEND properties RESOURCE_LOCK ${ARG_RESOURCE_LOCK})
  endif()
  if(ARG_SERIAL)
    list(APPEND properties RUN_SERIAL ON)
  endif()
  if(ARG_WHOLE)
    add_test(NAME ${ARG_NAME} COMMAND ${ARG_NAME})
    set_tests_properties(${ARG_NAME} PROPERTIES
      LABELS "${ARG_LABELS}" SKIP_REGULAR_EXPRESSION "\\[  SKIPPED \\]"
      ${properties})
  else()
    gtest_discover_tests(${ARG_NAME} TEST_PREFIX ${ARG_NAME}.
      DISCOVERY_TIMEOUT 120 PROPERTIES ${properties})
    # gtest_discover_tests takes a list of labels apart; ctest reads this after
    # what it has written.
    set(labels ${CMAKE_CURRENT_BINARY_DIR}/${ARG_NAME}_labels.cmake)
    file(WRITE ${labels} "foreach(test IN LISTS ${ARG_NAME}_TESTS)\n"
      "  set_tests_properties(\${test} PROPERTIES LABELS \"${ARG_LABELS}\")\n"
      "endforeach()\n")
    set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${labels})
  endif()
endfunction()

# cohort_script_test(NAME n COMMAND ... [LABELS ...] [TIMEOUT seconds]
#                    [SERIAL] [RESOURCE_LOCK name])
# A ctest that is no GoogleTest program; exit status 77 means skipped.
function(cohort_script_test)
  if(NOT COHORT_BUILD_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "SERIAL" "NAME;TIMEOUT;RESOURCE_LOCK" "COMMAND;LABELS"
    ${ARGN})
  if(NOT ARG_LABELS)
    set(ARG_LABELS integration)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 60)
  endif()
  add_test(NAME ${ARG_NAME} COMMAND ${ARG_COMMAND})
  set_tests_properties(${ARG_NAME} PROPERTIES
    LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT} SKIP_RETURN_CODE 77)
  if(ARG_SERIAL)
    set_tests_properties(${ARG_NAME} PROPERTIES RUN_SERIAL ON)
  endif()
  if(ARG_RESOURCE_LOCK)
    set_tests_properties(${ARG_NAME} PROPERTIES
      RESOURCE_LOCK ${ARG_RESOURCE_LOCK})
  endif()
endfunction()

# cohort_proto(NAME n PROTOS cohort/v1/x.proto ... [DEPS other_proto ...]):
# generated messages only; the wire's calls are made through rpc/, which needs no
# generated stubs.
function(cohort_proto)
  cmake_parse_arguments(ARG "" "NAME" "PROTOS;DEPS" ${ARGN})
  set(out ${CMAKE_BINARY_DIR}/gen)
  file(MAKE_DIRECTORY ${out})
  # A message may import any other: all are made again when one changes.
  file(GLOB_RECURSE inputs CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/proto/*.proto)
  set(generated)
  foreach(proto IN LISTS ARG_PROTOS)
    string(REGEX REPLACE "\\.proto$" "" stem ${proto})
    add_custom_command(
      OUTPUT ${out}/${stem}.pb.cc ${out}/${stem}.pb.h
      COMMAND protobuf::protoc --proto_path=${CMAKE_SOURCE_DIR}/proto
              --cpp_out=${out} ${proto}
      DEPENDS ${inputs}
      VERBATIM)
    list(APPEND generated ${out}/${stem}.pb.cc ${out}/${stem}.pb.h)
  endforeach()
  add_library(${ARG_NAME} STATIC ${generated})
  target_include_directories(${ARG_NAME} SYSTEM PUBLIC ${out})
  target_compile_options(${ARG_NAME} PRIVATE
    -ffunction-sections -fdata-sections ${COHORT_SANITIZE_FLAGS})
  target_link_libraries(${ARG_NAME} PUBLIC ${ARG_DEPS})
  cohort_note_library(${ARG_NAME} "${generated}" "${ARG_DEPS}")
endfunction()
