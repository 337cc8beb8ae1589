#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

#include "common/backoff.h"
#include "common/clock.h"
#include "common/executor.h"
#include "common/mutex.h"
#include "common/random.h"
#include "rpc/channel.h"
#include "rpc/stamp.h"

namespace cohort::client {

struct HeadClientOptions {
  // A head that `cohort up` starts again is back in a second.
  BackoffOptions backoff = {.initial = absl::Milliseconds(50),
                            .max = absl::Seconds(1)};
  // Told, on the executor of the call, of each failure that is tried again.
  // May be null.
  std::function<void(const absl::Status& why)> on_retry;
};

// Calls the head until it answers or the deadline comes, through restarts of
// the head.
//
// Sends the same bytes again on UNAVAILABLE, so a change must carry a request
// id.  Keeps the cluster's id and highest term (CL-2, CL-3).  Thread-safe.
// Everything passed by reference outlives it, and it outlives the tasks that it
// posts.
class HeadClient {
 public:
  using RawDone =
      absl::AnyInvocable<void(absl::StatusOr<std::string> response) &&>;

  HeadClient(rpc::Channel& channel, const Clock& clock, Random& random,
             HeadClientOptions options = {});

  // Calls `method`; `done` runs exactly once on `where`, with the head's answer
  // or Unavailable (reason "unreachable" when nobody answered) or
  // DeadlineExceeded at the deadline.  Where an executor was stopped it gets
  // CANCELLED from wherever the task is destroyed.
  template <typename Req, typename Resp>
  void Call(const rpc::UnaryMethod<Req, Resp>& method, const Req& request,
            absl::Duration deadline, Executor& where,
            std::type_identity_t<
                absl::AnyInvocable<void(absl::StatusOr<Resp> response) &&>>
                done) {
    CallRaw(method.path, request.SerializeAsString(), deadline, where,
            [done = std::move(done),
             path = method.path](absl::StatusOr<std::string> bytes) mutable {
              std::move(done)(Decode<Resp>(path, std::move(bytes)));
            });
  }

  // As Call, and waits for it on this thread.
  template <typename Req, typename Resp>
  absl::StatusOr<Resp> CallAndWait(const rpc::UnaryMethod<Req, Resp>& method,
                                   const Req& request,
                                   absl::Duration deadline) {
    return Decode<Resp>(
        method.path,
        CallRawAndWait(method.path, request.SerializeAsString(), deadline));
  }

  void CallRaw(const char* path, std::string request, absl::Duration deadline,
               Executor& where, RawDone done);
  absl::StatusOr<std::string> CallRawAndWait(const char* path,
                                             std::string request,
                                             absl::Duration deadline);

  // What a call that ended as `status`, answered by `stamp`, means here:
  // Unavailable when a head of a lower term answered, FailedPrecondition
  // (reason "other_cluster") when another cluster did, Unavailable with reason
  // "unreachable" when nobody did; else `status`.
  absl::Status Judge(const absl::Status& status,
                     const std::optional<rpc::Stamp>& stamp);

  rpc::Channel& channel() const { return channel_; }
  const Clock& clock() const { return clock_; }
  Backoff NewBackoff() const { return Backoff(options_.backoff, random_); }
  void OnRetry(const absl::Status& why) const {
    if (options_.on_retry) options_.on_retry(why);
  }

 private:
  class Attempts;

  template <typename Resp>
  static absl::StatusOr<Resp> Decode(const char* path,
                                     absl::StatusOr<std::string> bytes) {
    if (!bytes.ok()) return std::move(bytes).status();
    Resp response;
    if (!response.ParseFromString(*bytes)) return Undecodable(path);
    return response;
  }
  static absl::Status Undecodable(absl::string_view path);

  rpc::Channel& channel_;
  const Clock& clock_;
  Random& random_;
  const HeadClientOptions options_;

  Mutex mutex_;
  // The highest that answered.
  std::optional<rpc::Stamp> seen_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cohort::client
