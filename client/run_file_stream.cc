#include "client/run_file_stream.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

#include "client/caller_executor.h"
#include "common/duration_text.h"
#include "common/status_util.h"
#include "rpc/methods.h"

namespace cohort::client {
namespace {

// The head's word that the node is away: to ask again is the caller's choice.
constexpr char kNodeAway[] = "node_away";

using Sink = absl::FunctionRef<absl::Status(const v1::ReadRunFileResponse&)>;

// One stream, and those after it when it broke.
class RunFileStream {
 public:
  RunFileStream(HeadClient& head, v1::ReadRunFileRequest request,
                absl::Duration timeout, Sink sink)
      : head_(head),
        request_(std::move(request)),
        timeout_(timeout),
        sink_(sink),
        backoff_(head.NewBackoff()) {}

  absl::Status Run() {
    moved_at_ = head_.clock().Monotonic();
    Open();
    Watch();
    here_.RunUntil([this] { return ended_; });
    return result_;
  }

 private:
  using Stream = rpc::TypedStream<v1::ReadRunFileRequest>;

  void Open() {
    rpc::TypedEvents<v1::ReadRunFileResponse> events;
    events.on_message = [this](const v1::ReadRunFileResponse& message) {
      OnMessage(message);
    };
    // The stream may not be destroyed within its own event.
    events.on_closed = [this](absl::Status status,
                              std::optional<rpc::Stamp> stamp) {
      here_.Post([this, status = std::move(status), stamp = std::move(stamp)] {
        stream_.reset();
        OnClosed(head_.Judge(status, stamp));
      });
    };
    stream_ = rpc::OpenStream(head_.channel(), rpc::kReadRunFile,
                              {.deadline = absl::InfiniteDuration()}, here_,
                              std::move(events));
    // An error here comes through on_closed too.
    if (stream_->Write(request_).ok()) stream_->HalfClose();
  }

  void OnMessage(const v1::ReadRunFileResponse& message) {
    if (!result_.ok() || message.offset() != request_.offset()) return;
    moved_at_ = head_.clock().Monotonic();
    backoff_.Reset();
    request_.set_offset(message.offset() + message.files_size() +
                        static_cast<int64_t>(message.data().size()));
    result_ = sink_(message);
    if (!result_.ok()) stream_->Cancel();
  }

  void OnClosed(const absl::Status& status) {
    if (result_.ok() && absl::IsUnavailable(status) &&
        GetReason(status) != kNodeAway && Left() > absl::ZeroDuration()) {
      last_ = status;
      head_.OnRetry(status);
      here_.PostAfter(std::min(backoff_.Next(), Left()), [this] {
        if (!ended_) Open();
      });
      return;
    }
    if (result_.ok()) result_ = status;
    ended_ = true;
  }

  absl::Duration Left() const {
    return moved_at_ + timeout_ - head_.clock().Monotonic();
  }

  void Watch() {
    if (Left() > absl::ZeroDuration()) {
      return here_.PostAfter(Left(), [this] { Watch(); });
    }
    if (result_.ok()) {
      result_ =
          !last_.ok()
              ? last_
              : absl::DeadlineExceededError(absl::StrCat(
                    "nothing of the file came for ", DurationToText(timeout_)));
    }
    // Else a timer is pending that finds it ended.
    if (stream_ != nullptr) {
      stream_->Cancel();
    } else {
      ended_ = true;
    }
  }

  HeadClient& head_;
  v1::ReadRunFileRequest request_;  // from where to go on
  const absl::Duration timeout_;
  const Sink sink_;
  Backoff backoff_;
  CallerExecutor here_;
  std::unique_ptr<Stream> stream_;
  absl::Duration moved_at_;
  absl::Status last_;  // why the last stream broke
  absl::Status result_;
  bool ended_ = false;
};

}  // namespace

absl::Status ReadRunFile(HeadClient& head, v1::ReadRunFileRequest request,
                         absl::Duration timeout, Sink sink) {
  return RunFileStream(head, std::move(request), timeout, sink).Run();
}

}  // namespace cohort::client
