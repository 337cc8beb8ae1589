#pragma once

#include <cstddef>
#include <utility>

#include "rpc/fifo.h"

namespace cohort::rpc {

// Messages that a stream handles in one turn of its strand before others get
// theirs.
inline constexpr int kMessagesPerTurn = 32;

// What a stream received and its strand has not handled yet.  Both ends of a
// stream have one; while it is full its stream does not read, so that a slow
// reader slows its writer.  Thread-compatible: its stream's mutex.
template <typename Message>
class ReceiveQueue {
 public:
  ReceiveQueue(size_t messages_max, size_t bytes_max)
      : messages_max_(messages_max), bytes_max_(bytes_max) {}

  // Whether one more may be read: it is admitted whatever its size.
  bool HasRoom() const {
    return waiting_.size() < messages_max_ && bytes_ < bytes_max_;
  }
  bool empty() const { return waiting_.empty(); }

  void Push(Message message, size_t bytes) {
    bytes_ += bytes;
    waiting_.Push({std::move(message), bytes});
  }

  // REQUIRES: !empty().
  Message Pop() {
    std::pair<Message, size_t> next = waiting_.Pop();
    bytes_ -= next.second;
    return std::move(next.first);
  }

  void Clear() {
    waiting_.Clear();
    bytes_ = 0;
  }

 private:
  const size_t messages_max_;
  const size_t bytes_max_;
  Fifo<std::pair<Message, size_t>> waiting_;
  size_t bytes_ = 0;
};

}  // namespace cohort::rpc
