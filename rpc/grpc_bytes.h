#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "grpcpp/support/byte_buffer.h"

namespace cohort::rpc {

// Both transports: the header of a call's credential, and how much metadata a
// call may have (names, reasons and messages of 4 KiB, percent-encoded).
inline constexpr char kAuthorizationKey[] = "authorization";
inline constexpr int kMetadataBytesMax = 32 << 10;

// A message for gRPC to send.  Large ones are moved, not copied.
grpc::ByteBuffer ToByteBuffer(std::string message);

// A message that gRPC received, in one piece.  A value.
class ReceivedBytes {
 public:
  // Takes the contents of `buffer` and leaves it empty.
  explicit ReceivedBytes(grpc::ByteBuffer& buffer);

  // Lives as long as this.
  absl::string_view view() const {
    return absl::string_view(reinterpret_cast<const char*>(slice_.begin()),
                             slice_.size());
  }

 private:
  grpc::Slice slice_;
};

// Starts gRPC, once a process; later calls do nothing.  Its own log lines
// become debug lines of COHORT_LOG: what they say reaches callers as statuses.
//
// It is never shut down: taking it down between one server and the next waits
// up to ten seconds for what its threads still hold, and nothing is won by it.
void StartGrpc();

}  // namespace cohort::rpc
