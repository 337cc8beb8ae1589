#pragma once

#include <climits>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "trainer/cuda/driver.h"
#include "trainer/cuda/lookup.h"

// The part of NCCL that we use, declared here with nccl.h's ABI, so that NCCL
// is needed at run time only; nccl_abi_test compares it with the real header
// where there is one.
namespace cohort::trainer::nccl {

// ncclResult_t.  Compared by value: ncclNumResults grew with 2.30.
using Result = int;
inline constexpr Result kSuccess = 0;
inline constexpr Result kUnhandledCudaError = 1;
inline constexpr Result kSystemError = 2;
inline constexpr Result kInternalError = 3;
inline constexpr Result kInvalidArgument = 4;
inline constexpr Result kInvalidUsage = 5;
inline constexpr Result kRemoteError = 6;
inline constexpr Result kInProgress = 7;

// ncclDataType_t.
using DataType = int;
inline constexpr DataType kInt32 = 2;
inline constexpr DataType kInt64 = 4;
inline constexpr DataType kFloat16 = 6;
inline constexpr DataType kFloat32 = 7;
inline constexpr DataType kFloat64 = 8;
inline constexpr DataType kBfloat16 = 9;

// ncclRedOp_t.
using RedOp = int;
inline constexpr RedOp kSum = 0;
inline constexpr RedOp kMax = 2;
inline constexpr RedOp kMin = 3;
inline constexpr RedOp kAvg = 4;

using Communicator = struct NcclCommOpaque*;

struct UniqueId {
  char internal[128];
};

inline constexpr int kUndefined = INT_MIN;

// ncclConfig_t as of 2.18.  A newer library reads `size` bytes and takes its
// defaults for what came after `version`.
struct Config {
  size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef;
  unsigned version = 21800;
  int blocking = kUndefined;
  int cga_cluster_size = kUndefined;
  int min_ctas = kUndefined;
  int max_ctas = kUndefined;
  const char* net_name = nullptr;
  int split_share = kUndefined;
};

// Functions of libnccl.so.2 under their names.
struct NcclTable {
  std::function<Result(int*)> ncclGetVersion;
  std::function<const char*(Result)> ncclGetErrorString;
  std::function<const char*(Communicator)> ncclGetLastError;
  std::function<Result(UniqueId*)> ncclGetUniqueId;
  std::function<Result(Communicator*, int world, UniqueId, int rank, Config*)>
      ncclCommInitRankConfig;
  std::function<Result(Communicator, Result*)> ncclCommGetAsyncError;
  std::function<Result(Communicator)> ncclCommFinalize;
  std::function<Result(Communicator)> ncclCommDestroy;
  std::function<Result(Communicator)> ncclCommAbort;
  std::function<Result(const void* from, void* to, size_t, DataType, RedOp,
                       Communicator, cuda::Stream)>
      ncclAllReduce;
  std::function<Result(const void* from, void* to, size_t, DataType, int root,
                       Communicator, cuda::Stream)>
      ncclBroadcast;
  std::function<Result()> ncclGroupStart;
  std::function<Result()> ncclGroupEnd;

  // Unset before 2.28.7.
  std::function<Result(Communicator, int flags)> ncclCommRevoke;
};

// As ncclGetVersion counts: 22809 is 2.28.9.
inline constexpr int kVersionMin = 21800;
inline constexpr int kVersionRevoke = 22807;
// The newest that we looked at; what is newer is used, and said to be untried.
inline constexpr int kVersionKnownMax = 23299;

// "2.28.9" for 22809.
std::string VersionText(int version);

// NCCL as this process found it.  Immutable.
struct Library {
  NcclTable table;
  int version = 0;
  std::string path;  // what it was found as
};

// Asks the table for its version and takes out what that does not have, be it
// there by accident.  FAILED_PRECONDITION below kVersionMin.
absl::StatusOr<std::shared_ptr<const Library>> MakeLibrary(
    NcclTable table, std::string path,
    cuda::BeforeCall before = cuda::Unwatched);

// Where NCCL is looked for, in this order.  `wanted` alone when it is not
// empty; else the one alone that is in the process already, as PyTorch's is,
// since a second would bind calls of its own to the first one's symbols; else
// $COHORT_NCCL_LIBRARY alone when that is set; else libnccl.so.2, then the
// wheels in $VIRTUAL_ENV and $CONDA_PREFIX.
std::vector<std::string> LibraryCandidates(const std::string& wanted = "");

// The first of `candidates` that can be used, never unloaded.
// FAILED_PRECONDITION, saying of each why not: it is not there, too old,
// without a symbol.
absl::StatusOr<std::shared_ptr<const Library>> LoadFirst(
    const std::vector<std::string>& candidates,
    cuda::BeforeCall before = cuda::Unwatched);

// The machine's: of LibraryCandidates.
absl::StatusOr<std::shared_ptr<const Library>> LoadLibrary(
    const std::string& wanted = "", cuda::BeforeCall before = cuda::Unwatched);

// OK for kSuccess; else UNAVAILABLE with "what: unhandled system error (2): ",
// and what NCCL last said, which it does without a communicator, too: `comm`
// is null where none came to be.
absl::Status NcclStatus(const Library& library, Result result,
                        absl::string_view what, Communicator comm);

}  // namespace cohort::trainer::nccl
