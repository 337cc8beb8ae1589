# cohort_library, cohort_executable, cohort_test: one target a cohesive group, so
# that link dependencies repeat the layering of docs/architecture.md.

add_library(cohort_flags INTERFACE)
target_include_directories(cohort_flags INTERFACE
  $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}>)
target_compile_options(cohort_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor
  $<$<CXX_COMPILER_ID:Clang>:-Wthread-safety -Wthread-safety-beta>
  $<$<BOOL:${COHORT_WERROR}>:-Werror>)
if(COHORT_SANITIZE)
  target_compile_options(cohort_flags INTERFACE
    -fsanitize=${COHORT_SANITIZE} -fno-omit-frame-pointer)
  target_link_options(cohort_flags INTERFACE -fsanitize=${COHORT_SANITIZE})
endif()

# cohort_library(NAME n [SRCS ...] [HDRS ...] [DEPS ...])
function(cohort_library)
  cmake_parse_arguments(ARG "" "NAME" "SRCS;HDRS;DEPS" ${ARGN})
  if(ARG_SRCS)
    add_library(${ARG_NAME} STATIC ${ARG_SRCS} ${ARG_HDRS})
    target_link_libraries(${ARG_NAME} PUBLIC cohort_flags ${ARG_DEPS})
  else()
    add_library(${ARG_NAME} INTERFACE)
    target_link_libraries(${ARG_NAME} INTERFACE cohort_flags ${ARG_DEPS})
  endif()
endfunction()

# cohort_executable(NAME n SRCS ... [DEPS ...] [SHARED] [BARE])
# SHARED: always the shared gRPC, protobuf and Abseil (what links LibTorch must).
# BARE: none of them at all.
function(cohort_executable)
  cmake_parse_arguments(ARG "SHARED;BARE" "NAME" "SRCS;DEPS" ${ARGN})
  add_executable(${ARG_NAME} ${ARG_SRCS})
  target_link_libraries(${ARG_NAME} PRIVATE cohort_flags ${ARG_DEPS})
  if(ARG_BARE)
    return()
  elseif(COHORT_STATIC_DEPS AND NOT ARG_SHARED AND TARGET cohort_deps_static)
    target_link_libraries(${ARG_NAME} PRIVATE cohort_deps_static)
  else()
    target_link_libraries(${ARG_NAME} PRIVATE cohort_deps_shared)
  endif()
endfunction()

# cohort_test(NAME x_test SRCS ... [DEPS ...] [LABELS unit|sim|integration|lint|gpu])
function(cohort_test)
  if(NOT COHORT_BUILD_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "NAME;TIMEOUT" "SRCS;DEPS;LABELS" ${ARGN})
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 60)
  endif()
  add_executable(${ARG_NAME} ${ARG_SRCS})
  set_target_properties(${ARG_NAME} PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  target_link_libraries(${ARG_NAME} PRIVATE
    cohort_flags ${ARG_DEPS} GTest::gmock GTest::gtest_main cohort_deps_shared)
  add_test(NAME ${ARG_NAME} COMMAND ${ARG_NAME})
  set_tests_properties(${ARG_NAME} PROPERTIES
    LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT})
endfunction()

# cohort_proto(NAME n PROTOS cohort/v1/x.proto ...): generated messages only; the
# wire's calls are made through rpc/, which needs no generated stubs.
function(cohort_proto)
  cmake_parse_arguments(ARG "" "NAME" "PROTOS" ${ARGN})
  set(out ${CMAKE_BINARY_DIR}/gen)
  file(MAKE_DIRECTORY ${out})
  set(generated)
  foreach(proto IN LISTS ARG_PROTOS)
    string(REGEX REPLACE "\\.proto$" "" stem ${proto})
    add_custom_command(
      OUTPUT ${out}/${stem}.pb.cc ${out}/${stem}.pb.h
      COMMAND protobuf::protoc --proto_path=${CMAKE_SOURCE_DIR}/proto
              --cpp_out=${out} ${proto}
      DEPENDS ${CMAKE_SOURCE_DIR}/proto/${proto} ${ARG_DEPENDS}
      VERBATIM)
    list(APPEND generated ${out}/${stem}.pb.cc ${out}/${stem}.pb.h)
  endforeach()
  add_library(${ARG_NAME} STATIC ${generated})
  target_include_directories(${ARG_NAME} SYSTEM PUBLIC $<BUILD_INTERFACE:${out}>)
  if(COHORT_SANITIZE)
    target_compile_options(${ARG_NAME} PRIVATE -fsanitize=${COHORT_SANITIZE})
  endif()
endfunction()
