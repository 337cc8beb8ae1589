#pragma once

#include <memory>
#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "head/options.h"

namespace cohort::head {

// The head daemon: HeadCore with files, threads and a gRPC server around it,
// built in order and stopped in reverse.
//
// Thread-safe; lives on main's stack.
class Head {
 public:
  // The head cannot go on and has to end; from any thread, at most once.
  using Fatal = absl::AnyInvocable<void(const absl::Status&)>;

  // Locks the state directory, opens the store, takes a term, and serves.
  // InvalidArgument: options, or a state directory on a tmpfs without
  // is_volatile; FailedPrecondition or AlreadyExists: another head has the
  // directory or the port (it is named); DataLoss: the store is damaged.
  static absl::StatusOr<std::unique_ptr<Head>> Start(HeadOptions options,
                                                     Fatal on_fatal);
  // Stops serving; what was answered is durable.
  ~Head();

  Head(const Head&) = delete;
  Head& operator=(const Head&) = delete;

  // HOST:PORT that it serves on.
  const std::string& address() const;

 private:
  class Parts;

  explicit Head(std::unique_ptr<Parts> parts);

  const std::unique_ptr<Parts> parts_;
};

}  // namespace cohort::head
