#pragma once

#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "google/protobuf/message_lite.h"

namespace cohort::rpc {

// What answers a unary call behind a Reply; the Router implements it.
// Thread-safe.
class ReplySink {
 public:
  virtual ~ReplySink() = default;

  // The first answer wins; later ones are dropped.
  virtual void Send(const google::protobuf::MessageLite& response) = 0;
  virtual void SendError(const absl::Status& status) = 0;
  // The Reply is gone without an answer.
  virtual void Dropped() = 0;
};

// The one answer to a unary call.  Keep it as long as needed and answer from
// any thread:
//
//   std::move(reply)(response);              or    std::move(reply)(status);
//
// Once the caller is gone an answer is dropped.  A Reply destroyed without an
// answer while the caller waits is a bug: it gets INTERNAL.  Move-only.
template <typename Resp>
class Reply {
 public:
  // Shared: the transport's call and this.
  explicit Reply(std::shared_ptr<ReplySink> sink) : sink_(std::move(sink)) {}
  ~Reply() {
    if (sink_ != nullptr) sink_->Dropped();
  }

  Reply(Reply&& other) noexcept = default;
  Reply& operator=(Reply&& other) noexcept {
    std::swap(sink_, other.sink_);
    return *this;
  }

  // REQUIRES: not moved from, not yet called.
  void operator()(absl::StatusOr<Resp> result) && {
    const std::shared_ptr<ReplySink> sink = std::move(sink_);
    if (result.ok()) {
      sink->Send(*result);
    } else {
      sink->SendError(result.status());
    }
  }

 private:
  std::shared_ptr<ReplySink> sink_;
};

}  // namespace cohort::rpc
