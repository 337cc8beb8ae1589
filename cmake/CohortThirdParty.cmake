# Finds what we stand on, in the one order that works on Debian 12 and 13, and
# says what was found or is done without.

find_package(Threads REQUIRED)
find_package(Protobuf REQUIRED)  # The module, before gRPC's config asks for it.
if(NOT TARGET re2::re2)
  # gRPC's Findre2 asks pkg-config, which walks Abseil's .pc files for half a
  # minute on Debian 13; the library needs no flags.
  add_library(re2::re2 INTERFACE IMPORTED)
  target_link_libraries(re2::re2 INTERFACE re2)
endif()
find_package(absl CONFIG REQUIRED)
find_package(gRPC CONFIG REQUIRED)

set(COHORT_HAVE_GLOO OFF)
if(COHORT_WITH_GLOO)
  find_package(Gloo CONFIG QUIET)
  if(TARGET gloo)
    set(COHORT_HAVE_GLOO ON)
    message(STATUS "cohort: Gloo found: gangs over more than one node can reduce on CPUs")
  else()
    message(STATUS "cohort: Gloo not found: gangs over more than one node are refused")
  endif()
else()
  message(STATUS "cohort: Gloo off (COHORT_WITH_GLOO=OFF): gangs over more than one node are refused")
endif()

# LibTorch before RocksDB: RocksDB's config sets GFLAGS_USE_TARGET_NAMESPACE and
# Caffe2's then misses the bare gflags target.
set(COHORT_HAVE_TORCH OFF)
if(NOT COHORT_WITH_TORCH)
  message(STATUS "cohort: LibTorch off (COHORT_WITH_TORCH=OFF): no trainer/torch, mnist, gpt")
elseif(COHORT_TORCH_DIR)
  include(CohortTorchWheel)
  cohort_torch_wheel(${COHORT_TORCH_DIR} reason)
  if(reason)
    message(FATAL_ERROR "${reason}; or leave COHORT_TORCH_DIR out for the system's "
      "LibTorch")
  endif()
  set(COHORT_HAVE_TORCH ON)
  message(STATUS "cohort: LibTorch ${Torch_VERSION} of ${COHORT_TORCH_DIR}: trainer/torch, mnist and gpt are built")
else()
  find_package(Torch CONFIG QUIET)
  if(Torch_FOUND)
    set(COHORT_HAVE_TORCH ON)
    message(STATUS "cohort: LibTorch ${Torch_VERSION}: trainer/torch, mnist and gpt are built")
  else()
    message(STATUS "cohort: LibTorch not found (COHORT_TORCH_DIR takes a torch wheel's): no trainer/torch, mnist, gpt")
  endif()
endif()

find_package(RocksDB CONFIG REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(CLI11 CONFIG REQUIRED)
find_package(nlohmann_json CONFIG REQUIRED)

# By hand: what its own config gives is named differently from version to version.
find_path(COHORT_YAML_INCLUDE yaml-cpp/yaml.h REQUIRED)
find_library(COHORT_YAML_LIBRARY yaml-cpp REQUIRED)
mark_as_advanced(COHORT_YAML_INCLUDE COHORT_YAML_LIBRARY)
add_library(yaml_cpp INTERFACE IMPORTED)
target_include_directories(yaml_cpp INTERFACE ${COHORT_YAML_INCLUDE})
target_link_libraries(yaml_cpp INTERFACE ${COHORT_YAML_LIBRARY})

# By hand: its own config asks for what its pull and push parts need.
find_path(COHORT_PROMETHEUS_INCLUDE prometheus/text_serializer.h REQUIRED)
find_library(COHORT_PROMETHEUS_CORE prometheus-cpp-core REQUIRED)
mark_as_advanced(COHORT_PROMETHEUS_INCLUDE COHORT_PROMETHEUS_CORE)
add_library(prometheus_core INTERFACE IMPORTED)
target_include_directories(prometheus_core INTERFACE
  ${COHORT_PROMETHEUS_INCLUDE})
target_link_libraries(prometheus_core INTERFACE ${COHORT_PROMETHEUS_CORE})

message(STATUS "cohort: NVML is opened at run time; without it a worker offers no GPUs")

if(COHORT_BUILD_TESTS)
  find_package(GTest CONFIG REQUIRED)
  find_package(LibArchive REQUIRED)  # Makes packages for the unpacker's test.
  # Debian's own: a python of the user's lacks torch and numpy.
  find_program(COHORT_PYTHON NAMES python3 PATHS /usr/bin NO_DEFAULT_PATH)
  if(NOT COHORT_PYTHON)
    find_program(COHORT_PYTHON NAMES python3 REQUIRED)
  endif()
endif()

# Headers of gRPC, protobuf, Abseil, RocksDB and OpenSSL lie in the system
# directory: libraries compile against them and link none of them.  Each program
# links exactly one of the two targets below, so that no process holds two copies
# of protobuf (or of libstdc++).

# What the client and trainer libraries need, and so programs that link the installed
# cohort::cohort.
add_library(cohort_public_deps INTERFACE)
set_target_properties(cohort_public_deps PROPERTIES EXPORT_NAME public_deps)
target_link_libraries(cohort_public_deps INTERFACE
  gRPC::grpc++ protobuf::libprotobuf OpenSSL::SSL OpenSSL::Crypto
  absl::base absl::status absl::statusor absl::strings absl::str_format
  absl::cord absl::time absl::flat_hash_map absl::flat_hash_set
  absl::node_hash_map absl::node_hash_set absl::btree
  absl::any_invocable absl::cleanup absl::span absl::hash
  absl::random_random absl::synchronization absl::symbolize
  absl::failure_signal_handler absl::debugging
  Threads::Threads ${CMAKE_DL_LIBS})

# Everything from shared objects: tests and what links LibTorch.  --as-needed: a
# program loads what it calls, not all of this list.
add_library(cohort_deps_shared INTERFACE)
target_link_libraries(cohort_deps_shared INTERFACE
  -Wl,--as-needed cohort_public_deps RocksDB::rocksdb-shared)

# Everything but glibc from archives: 1.5 ms from exec to main instead of 9.
# glibc stays dynamic, because NVML, NCCL and name resolution need dlopen.
# gRPC's CMake targets name the shared objects only, hence a list by hand; the
# group lets the linker walk its cycles.  What nothing refers to costs nothing,
# so Abseil comes by glob: the set differs between Debian 12 and 13.
if(COHORT_STATIC_DEPS)
  set(archives)
  set(missing)
  foreach(name IN ITEMS grpc++ grpc gpr upb address_sorting protobuf re2 cares
                        rocksdb snappy lz4 bz2 zstd gflags ssl crypto z)
    string(MAKE_C_IDENTIFIER COHORT_ARCHIVE_${name} variable)
    find_library(${variable} NAMES lib${name}.a)
    mark_as_advanced(${variable})
    if(${variable})
      list(APPEND archives ${${variable}})
    else()
      list(APPEND missing lib${name}.a)
    endif()
  endforeach()
  find_library(COHORT_ARCHIVE_absl_base NAMES libabsl_base.a)
  mark_as_advanced(COHORT_ARCHIVE_absl_base)
  if(COHORT_ARCHIVE_absl_base)
    get_filename_component(folder ${COHORT_ARCHIVE_absl_base} DIRECTORY)
    file(GLOB absl_archives ${folder}/libabsl_*.a)
    list(APPEND archives ${absl_archives})
  else()
    list(APPEND missing libabsl_base.a)
  endif()
  if(missing)
    message(STATUS "cohort: programs use shared gRPC: no archive for ${missing}")
  else()
    add_library(cohort_deps_static INTERFACE)
    target_link_libraries(cohort_deps_static INTERFACE
      -Wl,--start-group ${archives} -Wl,--end-group
      Threads::Threads ${CMAKE_DL_LIBS} rt m)
    target_link_options(cohort_deps_static INTERFACE
      -Wl,--gc-sections -Wl,--as-needed)
    message(STATUS "cohort: programs hold gRPC, protobuf, Abseil and RocksDB statically")
  endif()
else()
  message(STATUS "cohort: programs use shared gRPC (COHORT_STATIC_DEPS=OFF)")
endif()
