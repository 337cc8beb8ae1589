#pragma once

#include <cstddef>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "rpc/fifo.h"

namespace cohort::rpc {

// What waits to be written to a stream, of which one write is open at a time.
// Both ends of a stream have one.  Thread-compatible: its stream's mutex.
class SendQueue {
 public:
  SendQueue(size_t messages_max, size_t bytes_max)
      : messages_max_(messages_max), bytes_max_(bytes_max) {}

  // ResourceExhausted when full, and unchanged then.  An empty queue takes any
  // message.
  absl::Status Push(std::string message) {
    if (!messages_.empty() && (messages_.size() >= messages_max_ ||
                               bytes_ + message.size() > bytes_max_)) {
      return absl::ResourceExhaustedError(
          absl::StrCat("the stream's peer is slow: ", messages_.size(),
                       " messages of ", bytes_, " bytes wait for it"));
    }
    bytes_ += message.size();
    messages_.Push(std::move(message));
    return absl::OkStatus();
  }

  // Whether the next write may start.
  bool Ready() const { return !writing_ && !messages_.empty(); }
  // Whether nothing waits and no write is open.
  bool Idle() const { return !writing_ && messages_.empty(); }
  bool writing() const { return writing_; }
  size_t bytes() const { return bytes_; }

  // The next message, whose write is now open.  REQUIRES: Ready().
  std::string Take() {
    writing_ = true;
    std::string message = messages_.Pop();
    bytes_ -= message.size();
    return message;
  }
  bool HasMore() const { return !messages_.empty(); }

  void WriteDone() { writing_ = false; }

  // Drops what waits; an open write stays open.
  void Clear() {
    messages_.Clear();
    bytes_ = 0;
  }

 private:
  const size_t messages_max_;
  const size_t bytes_max_;
  Fifo<std::string> messages_;
  size_t bytes_ = 0;
  bool writing_ = false;
};

}  // namespace cohort::rpc
