# What `cmake --install` installs: the programs (component cohort), and for other
# people's projects one library, cohort::cohort, with the headers of the folders it is
# made of (component dev).  cohort::torch is the LibTorch adapter on top of it.
# Component examples, on request: the example programs and their data.
# `cpack` makes Debian packages of the first two.

include(CMakePackageConfigHelpers)
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME dev)

# Sets ${out} to the libraries of ours that `roots` need, themselves included, and
# ${out}_FOREIGN to what these link of other people's.
function(cohort_closure out roots)
  get_property(ours GLOBAL PROPERTY COHORT_LIBRARIES)
  set(found)
  set(foreign)
  while(roots)
    list(POP_FRONT roots name)
    if(NOT name IN_LIST ours)
      list(APPEND foreign ${name})
    elseif(NOT name IN_LIST found)
      list(APPEND found ${name})
      get_property(deps GLOBAL PROPERTY COHORT_${name}_DEPS)
      list(APPEND roots ${deps})
    endif()
  endwhile()
  list(REMOVE_DUPLICATES foreign)
  set(${out} ${found} PARENT_SCOPE)
  set(${out}_FOREIGN ${foreign} PARENT_SCOPE)
endfunction()

# cohort_install_library(NAME n EXPORT set ROOTS ... [WITHOUT ours ...] [DEPS ...]):
# one archive of the objects of all libraries of ours that ROOTS need.
function(cohort_install_library)
  cmake_parse_arguments(ARG "" "NAME;EXPORT" "ROOTS;WITHOUT;DEPS" ${ARGN})
  cohort_closure(parts "${ARG_ROOTS}")
  list(REMOVE_ITEM parts ${ARG_WITHOUT} "")
  set(objects)
  foreach(part IN LISTS parts)
    get_property(has_objects GLOBAL PROPERTY COHORT_${part}_HAS_OBJECTS)
    if(has_objects)
      list(APPEND objects $<TARGET_OBJECTS:${part}>)
    endif()
  endforeach()
  add_library(${ARG_NAME} STATIC ${objects})
  set_target_properties(${ARG_NAME} PROPERTIES LINKER_LANGUAGE CXX)
  target_compile_features(${ARG_NAME} PUBLIC cxx_std_20)
  target_include_directories(${ARG_NAME} INTERFACE
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_link_libraries(${ARG_NAME} PUBLIC ${ARG_DEPS} ${parts_FOREIGN})
  install(TARGETS ${ARG_NAME} EXPORT ${ARG_EXPORT}
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
  foreach(part IN LISTS parts)
    get_target_property(folder ${part} SOURCE_DIR)
    get_property(headers_done GLOBAL PROPERTY COHORT_HEADERS_OF_${folder})
    if(NOT headers_done AND NOT folder STREQUAL "${CMAKE_SOURCE_DIR}/proto")
      set_property(GLOBAL PROPERTY COHORT_HEADERS_OF_${folder} ON)
      file(RELATIVE_PATH relative ${CMAKE_SOURCE_DIR} ${folder})
      file(GLOB headers CONFIGURE_DEPENDS ${folder}/*.h)
      install(FILES ${headers}
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/cohort/${relative})
    endif()
  endforeach()
endfunction()

# The folders whose headers are for other people's programs; what their libraries
# need comes by itself.
set(roots)
set(torch_roots)
get_property(ours GLOBAL PROPERTY COHORT_LIBRARIES)
foreach(name IN LISTS ours)
  get_target_property(folder ${name} SOURCE_DIR)
  file(RELATIVE_PATH folder ${CMAKE_SOURCE_DIR} ${folder})
  if(name MATCHES "_testing$")
    continue()
  elseif(folder MATCHES "^(common|shm|client|actor|trainer|trainer/comm|trainer/train)$")
    list(APPEND roots ${name})
  elseif(folder STREQUAL "trainer/torch")
    list(APPEND torch_roots ${name})
  endif()
endforeach()
cohort_install_library(NAME cohort EXPORT cohortTargets ROOTS ${roots}
  DEPS cohort_public_deps)
install(TARGETS cohort_public_deps EXPORT cohortTargets)
if(TARGET cohort_proto)
  install(DIRECTORY ${CMAKE_BINARY_DIR}/gen/cohort
    DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
    FILES_MATCHING PATTERN "*.pb.h" PATTERN "storage.pb.h" EXCLUDE)
endif()
if(torch_roots)
  cohort_closure(inside "${roots}")
  cohort_install_library(NAME cohort_torch EXPORT cohortTorchTargets
    ROOTS ${torch_roots} WITHOUT ${inside} DEPS cohort)
  set_target_properties(cohort_torch PROPERTIES EXPORT_NAME torch)
endif()

# Programs of others include "cohort/client/cluster.h": common/ and client/ are names
# that any of them may have.  So do our headers, once they are installed.
install(CODE "
  set(headers \$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_INCLUDEDIR}/cohort)
  file(GLOB folders RELATIVE \${headers} \${headers}/*)
  list(JOIN folders | folders)
  file(GLOB_RECURSE files \${headers}/*.h)
  foreach(file IN LISTS files)
    file(READ \${file} text)
    string(REGEX REPLACE \"#include \\\"(\${folders})/\"
      \"#include \\\"cohort/\\\\1/\" named \"\${text}\")
    if(NOT named STREQUAL text)
      file(WRITE \${file} \"\${named}\")
    endif()
  endforeach()")

foreach(kind IN ITEMS STATIC SHARED BARE MIXED)
  get_property(programs GLOBAL PROPERTY COHORT_${kind}_PROGRAMS)
  foreach(program IN LISTS programs)
    get_target_property(folder ${program} SOURCE_DIR)
    file(RELATIVE_PATH folder ${CMAKE_SOURCE_DIR} ${folder})
    if(folder MATCHES "^examples/")
      install(TARGETS ${program} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR}
        COMPONENT examples EXCLUDE_FROM_ALL)
    elseif(NOT folder MATCHES "^tests/")
      install(TARGETS ${program} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR}
        COMPONENT cohort)
    endif()
  endforeach()
endforeach()
foreach(data IN ITEMS mnist text)
  install(DIRECTORY ${CMAKE_SOURCE_DIR}/data/${data}
    DESTINATION ${CMAKE_INSTALL_DATADIR}/cohort/data
    COMPONENT examples EXCLUDE_FROM_ALL)
endforeach()
# systemd units that name the programs where they were installed, also by --prefix.
foreach(unit IN ITEMS cohort-head cohort-worker)
  install(CODE "
    set(CMAKE_INSTALL_FULL_BINDIR \${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_BINDIR})
    set(unit \$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/lib/systemd/system/${unit}.service)
    configure_file(${CMAKE_SOURCE_DIR}/docker/deploy/systemd/${unit}.service.in
      \${unit} @ONLY)
    message(STATUS \"Installing: \${unit}\")" COMPONENT cohort)
endforeach()
# Where bash-completion and zsh look.
install(FILES ${CMAKE_SOURCE_DIR}/tools/completion/cohort.bash
  DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME cohort
  COMPONENT cohort)
foreach(place IN ITEMS site-functions vendor-completions)  # /usr/local; Debian's /usr
  install(FILES ${CMAKE_SOURCE_DIR}/tools/completion/_cohort
    DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/${place} COMPONENT cohort)
endforeach()
install(FILES ${CMAKE_SOURCE_DIR}/tests/install/project/train_all.cc
  DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples COMPONENT dev)
install(FILES ${CMAKE_SOURCE_DIR}/LICENSE ${CMAKE_SOURCE_DIR}/README.md
  DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT cohort)

set(package ${CMAKE_INSTALL_LIBDIR}/cmake/cohort)
configure_package_config_file(${CMAKE_SOURCE_DIR}/cmake/cohortConfig.cmake.in
  ${CMAKE_BINARY_DIR}/cohortConfig.cmake INSTALL_DESTINATION ${package})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/cohortConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/cohortConfig.cmake
  ${CMAKE_BINARY_DIR}/cohortConfigVersion.cmake
  ${CMAKE_CURRENT_LIST_DIR}/CohortTorchWheel.cmake DESTINATION ${package})
install(EXPORT cohortTargets NAMESPACE cohort:: DESTINATION ${package})
if(torch_roots)
  # Of its own: only a program that found LibTorch has that target.
  install(EXPORT cohortTorchTargets NAMESPACE cohort:: DESTINATION ${package})
endif()

# ---- Debian packages ----

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_PACKAGE_CONTACT "The cohort authors <cohort@localhost>")
set(CPACK_COMPONENTS_ALL cohort dev)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_COHORT_PACKAGE_NAME cohort)
set(CPACK_DEBIAN_COHORT_PACKAGE_SECTION admin)
set(CPACK_COMPONENT_COHORT_DESCRIPTION "Actor runtime for training clusters
 Head and worker daemons, and the cohort command.")
set(CPACK_DEBIAN_COHORT_PACKAGE_SHLIBDEPS ON)
# `cohort stack` asks eu-stack.
set(CPACK_DEBIAN_COHORT_PACKAGE_SUGGESTS elfutils)
set(CPACK_DEBIAN_COHORT_PACKAGE_CONTROL_EXTRA
  ${CMAKE_SOURCE_DIR}/docker/deploy/debian/postinst
  ${CMAKE_SOURCE_DIR}/docker/deploy/debian/prerm)
set(CPACK_DEBIAN_DEV_PACKAGE_NAME cohort-dev)
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
set(CPACK_COMPONENT_DEV_DESCRIPTION "Actor runtime for training clusters: library
 The client and training library, its headers and CMake package.")
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS "cohort (= ${PROJECT_VERSION}), \
libgrpc++-dev, libprotobuf-dev, protobuf-compiler-grpc, libabsl-dev, libre2-dev, \
libc-ares-dev, libssl-dev, zlib1g-dev, libgloo-dev, nlohmann-json3-dev")
# The archive of the library has 100 MB.
set(CPACK_DEBIAN_COMPRESSION_TYPE zstd)
include(CPack)
