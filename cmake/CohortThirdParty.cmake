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

# LibTorch before RocksDB: RocksDB's config sets GFLAGS_USE_TARGET_NAMESPACE and
# Caffe2's then misses the bare gflags target.
set(COHORT_HAVE_TORCH OFF)
if(COHORT_WITH_TORCH)
  find_package(Torch CONFIG QUIET)
  if(Torch_FOUND)
    set(COHORT_HAVE_TORCH ON)
    message(STATUS "cohort: LibTorch ${Torch_VERSION}: trainer/torch and mnist are built")
  else()
    message(STATUS "cohort: LibTorch not found: no trainer/torch, no mnist")
  endif()
else()
  message(STATUS "cohort: LibTorch off (COHORT_WITH_TORCH=OFF): no trainer/torch, no mnist")
endif()

find_package(RocksDB CONFIG REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(CLI11 CONFIG REQUIRED)
find_package(nlohmann_json CONFIG REQUIRED)

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
message(STATUS "cohort: NVML is opened at run time; without it a worker offers no GPUs")

if(COHORT_BUILD_TESTS)
  find_package(GTest CONFIG REQUIRED)
endif()

# Headers of gRPC, protobuf and Abseil live in the system directory; libraries
# compile against them and leave the choice of static or shared to the program.
add_library(cohort_deps_shared INTERFACE)
target_link_libraries(cohort_deps_shared INTERFACE
  gRPC::grpc++ protobuf::libprotobuf OpenSSL::Crypto
  absl::status absl::statusor absl::strings absl::str_format absl::time
  absl::flat_hash_map absl::flat_hash_set absl::btree absl::any_invocable
  absl::cleanup absl::span absl::symbolize absl::failure_signal_handler
  Threads::Threads)
