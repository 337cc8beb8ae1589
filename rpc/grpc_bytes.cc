#include "rpc/grpc_bytes.h"

#include <mutex>
#include <utility>

#include "absl/synchronization/mutex.h"

#include "common/log.h"
#include "grpc/grpc.h"
#include "grpc/support/log.h"

namespace cohort::rpc {
namespace {

// Below it a copy is cheaper than keeping the string for gRPC.
constexpr size_t kCopyBytesMax = 4096;

void LogOfGrpc(gpr_log_func_args* args) {
  COHORT_LOG(kDebug, "grpc", {"message", args->message});
}

}  // namespace

grpc::ByteBuffer ToByteBuffer(std::string message) {
  if (message.size() <= kCopyBytesMax) {
    const grpc::Slice slice(message.data(), message.size());
    return grpc::ByteBuffer(&slice, 1);
  }
  auto* const kept = new std::string(std::move(message));
  const grpc::Slice slice(
      kept->data(), kept->size(),
      [](void* string) { delete static_cast<std::string*>(string); }, kept);
  return grpc::ByteBuffer(&slice, 1);
}

ReceivedBytes::ReceivedBytes(grpc::ByteBuffer& buffer) {
  grpc::ByteBuffer taken;
  taken.Swap(&buffer);
  if (!taken.TrySingleSlice(&slice_).ok() &&
      !taken.DumpToSingleSlice(&slice_).ok()) {
    slice_ = grpc::Slice();  // Nothing: as an empty message.
  }
}

void StartGrpc() {
  static std::once_flag once;
  std::call_once(once, [] {
#ifdef NDEBUG
    // Debian builds Abseil with the search for lock cycles on, which keeps a
    // graph of all mutexes that are held behind one lock: of gRPC's there are
    // several a call.
    absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
#endif
    gpr_set_log_function(&LogOfGrpc);
    grpc_init();
  });
}

}  // namespace cohort::rpc
