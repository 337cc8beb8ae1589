#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "actor/call_limits.h"
#include "common/mutex.h"
#include "common/status_macros.h"
#include "shm/ring_pair.h"

namespace cohort::actor {

// One end's messages, which come and go by a stream or a ring beside it
// (docs/design/0019-ring.md).
//
// Each message by the ring says how many went by the stream before it, and the
// other way round: so both are one sequence, and the stream can take over at
// any time.  Both ends begin when one message has gone by the stream each way.
//
// RW-1: messages are taken in the order in which they were sent, one at a time,
//       whichever way they came and whichever threads brought them.
// RW-2: who lacks something goes on with nothing: no thread waits here.
//
// Thread-safe, but for Push and ForStream, which are one writer's at a time.
template <typename Message>
class RingWay {
 public:
  using Own = std::remove_const_t<Message>;
  using Take = absl::FunctionRef<void(Message& message, size_t bytes)>;

  explicit RingWay(std::unique_ptr<shm::RingPair> ring)
      : ring_(std::move(ring)) {}

  // This thread brings a message of the stream, and takes what can be taken,
  // unless another thread does just now: then that one takes it.  An error: the
  // other end breaks the protocol, and the stream is to be closed.
  absl::Status OnStream(Message& message, size_t bytes, Take take) {
    bool is_next = false;
    {
      MutexLock lock(mutex_);
      is_next = !is_taking_ && message.ring_messages() == popped_;
      if (!is_next) COHORT_RETURN_IF_ERROR(Keep(message, bytes));
      if (is_taking_) return absl::OkStatus();
      is_taking_ = true;
      if (is_next) ++streamed_;
    }
    if (is_next) take(message, bytes);
    return TakeAll(take);
  }
  // This thread takes what is in the ring, unless another one does.
  absl::Status Drain(Take take) {
    {
      MutexLock lock(mutex_);
      if (is_taking_) return absl::OkStatus();
      is_taking_ = true;
    }
    return TakeAll(take);
  }

  // A thread of this end looks at the ring: the other end uses it.  False:
  // another one does already.
  bool StartLooking() {
    if (is_looking_.exchange(true)) return false;
    ring_->reader().SetLooks(true);
    return true;
  }
  // And not any more, but for one Drain after this: the other end uses the
  // stream.
  void StopLooking() {
    ring_->reader().SetLooks(false);
    is_looking_ = false;
  }
  bool HasMore() const { return ring_->reader().HasMore(); }

  // False: it has to go by the stream.
  bool Push(absl::string_view bytes) {
    if (bytes.size() > kRingMessageBytesMax ||
        !ring_->writer().Push(sent_by_stream_, bytes)) {
      return false;
    }
    ++pushed_;
    return true;
  }
  // A message goes by the stream now: its `ring_messages`.
  uint64_t ForStream() {
    ++sent_by_stream_;
    return pushed_;
  }
  // Whether the other end has the ring, and will look before it sleeps; whether
  // it has not taken all yet.  Thread-safe.
  bool IsShared() const { return ring_->IsShared(); }
  bool IsLookedAt() const { return ring_->writer().IsLookedAt(); }
  bool HasUnread() const { return ring_->writer().HasUnread(); }

  // REQUIRES: it was created here, and is not closed.
  shm::RingPlace place() const { return ring_->place(); }
  void Close() { ring_->Close(); }

 private:
  struct Kept {
    Own message;
    size_t bytes;
  };

  absl::Status Keep(const Own& message, size_t bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    kept_bytes_ += bytes;
    if (kept_bytes_ > 2 * kWindowBytes) {
      return absl::ResourceExhaustedError(
          "messages come faster than they can be taken");
    }
    kept_.push_back({message, bytes});
    return absl::OkStatus();
  }

  // REQUIRES: this thread has set is_taking_.
  absl::Status TakeAll(Take take) {
    for (;;) {
      size_t bytes = 0;
      {
        MutexLock lock(mutex_);
        const absl::StatusOr<bool> next = Next(bytes);
        if (!next.ok() || !*next) {
          is_taking_ = false;
          return next.status();
        }
      }
      take(next_, bytes);
    }
  }

  // To next_; false: nothing has come.
  absl::StatusOr<bool> Next(size_t& bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (!kept_.empty() && kept_.front().message.ring_messages() <= popped_) {
      next_.Swap(&kept_.front().message);
      bytes = kept_.front().bytes;
      kept_bytes_ -= bytes;
      kept_.pop_front();
      ++streamed_;
      return true;
    }
    COHORT_ASSIGN_OR_RETURN(const bool is_there,
                            ring_->reader().Pop(streamed_, bytes_));
    if (!is_there) {
      if (kept_.empty()) return false;
      return absl::DataLossError("the ring lacks what the stream speaks of");
    }
    ++popped_;
    bytes = bytes_.size();
    if (next_.ParseFromString(bytes_)) return true;
    return absl::DataLossError("a message in the ring cannot be decoded");
  }

  const std::unique_ptr<shm::RingPair> ring_;
  std::atomic<bool> is_looking_{false};

  // The writer's.
  uint64_t pushed_ = 0;
  uint64_t sent_by_stream_ = 1;

  Mutex mutex_;
  bool is_taking_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t popped_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t streamed_ ABSL_GUARDED_BY(mutex_) = 1;
  std::deque<Kept> kept_ ABSL_GUARDED_BY(mutex_);  // came too early
  size_t kept_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::string bytes_ ABSL_GUARDED_BY(mutex_);
  Own next_;  // who has set is_taking_
};

}  // namespace cohort::actor
