# gen/cohort_build_values.h: version, commit and build type, for common/build_info.
# Looked at again by every build, written only when it differs, included by one file.
# As a script (cmake -P) it writes the file; included, it defines the target
# cohort_build_values.

if(CMAKE_SCRIPT_MODE_FILE)
  cmake_minimum_required(VERSION 3.25)  # A script begins with no policies set.
  set(commit unknown)
  execute_process(COMMAND git rev-parse --short=12 HEAD
    WORKING_DIRECTORY ${SOURCE_DIR} OUTPUT_VARIABLE head
    RESULT_VARIABLE failed ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT failed)
    set(commit ${head})
    execute_process(COMMAND git status --porcelain --untracked-files=no
      WORKING_DIRECTORY ${SOURCE_DIR} OUTPUT_VARIABLE changes ERROR_QUIET)
    if(changes)
      string(APPEND commit "+changes")
    endif()
  endif()
  file(CONFIGURE OUTPUT ${OUTPUT} @ONLY CONTENT [=[
#pragma once
#define COHORT_BUILD_VERSION "@VERSION@"
#define COHORT_BUILD_COMMIT "@commit@"
#define COHORT_BUILD_KIND "@BUILD@"
]=])
  return()
endif()

set(build "${CMAKE_BUILD_TYPE} ${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}")
if(COHORT_SANITIZE)
  string(APPEND build " ${COHORT_SANITIZE}")
endif()
add_custom_target(cohort_build_values
  COMMAND ${CMAKE_COMMAND} -DSOURCE_DIR=${CMAKE_SOURCE_DIR}
          -DOUTPUT=${CMAKE_BINARY_DIR}/gen/cohort_build_values.h
          -DVERSION=${PROJECT_VERSION} -DBUILD=${build}
          -P ${CMAKE_CURRENT_LIST_FILE}
  BYPRODUCTS ${CMAKE_BINARY_DIR}/gen/cohort_build_values.h
  COMMENT "" VERBATIM)
