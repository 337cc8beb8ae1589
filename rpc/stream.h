#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "google/protobuf/message_lite.h"

// The server's two ends of a stream.
namespace cohort::rpc {

// What a StreamWriter writes to; the Router implements it.  Thread-safe.
class StreamSink {
 public:
  virtual ~StreamSink() = default;

  virtual absl::Status Write(const google::protobuf::MessageLite& message) = 0;
  virtual void Close(absl::Status status) = 0;
  virtual size_t QueuedBytes() const = 0;
  virtual void SetOnDrained(absl::AnyInvocable<void()> callback) = 0;
};

// Sends messages to the client of one stream.  Thread-safe.  Destroying it
// without Close closes the stream as UNAVAILABLE.
//
// ST-1: never blocks; what the client has not taken waits in a queue bounded in
//       messages and bytes (RouterOptions), and beyond it Write says no.
// ST-2: messages arrive in the order of Write, none twice, none missing before
//       a later one.
template <typename Down>
class StreamWriter {
 public:
  // Shared: the Router's stream and this.
  explicit StreamWriter(std::shared_ptr<StreamSink> sink)
      : sink_(std::move(sink)) {}
  ~StreamWriter() {
    sink_->Close(absl::UnavailableError("the server dropped the stream"));
  }

  StreamWriter(const StreamWriter&) = delete;
  StreamWriter& operator=(const StreamWriter&) = delete;

  // ResourceExhausted when the queue is full: the message is not queued, and
  // the caller decides (usually Close).  InvalidArgument when the message is
  // over the size limit.  Unavailable when the stream is over.
  absl::Status Write(const Down& message) { return sink_->Write(message); }

  // Ends the stream: an OK one after what is queued, an error after at most the
  // message that is being written.  Only the first counts.  OnClosed follows.
  void Close(absl::Status status) { sink_->Close(std::move(status)); }

  // Queued and not yet taken by the transport.
  size_t QueuedBytes() const { return sink_->QueuedBytes(); }

  // Calls `callback` on the strand each time that the queue has become empty,
  // until OnClosed.  For sources that write as fast as the client takes.
  void SetOnDrained(absl::AnyInvocable<void()> callback) {
    sink_->SetOnDrained(std::move(callback));
  }

 private:
  const std::shared_ptr<StreamSink> sink_;
};

// What a service does with a client's messages: one object a stream, made by
// the method's `open`.  Strand-bound; the Router destroys it on the strand
// after OnClosed.
//
// Reading stops while RouterOptions' window of messages waits for the strand,
// so a slow strand slows the client and nothing grows.
template <typename Up>
class StreamReader {
 public:
  virtual ~StreamReader() = default;

  virtual void OnMessage(const Up& message) = 0;
  // The client sends no more and still listens.
  virtual void OnHalfClosed() {}
  // The stream is over; the last call, exactly one.  `status` is what this side
  // gave to Close; UNAVAILABLE when the client cancelled or went away (which of
  // the two cannot be told), DEADLINE_EXCEEDED when its deadline passed;
  // INVALID_ARGUMENT or RESOURCE_EXHAUSTED when it sent garbage or too much.
  virtual void OnClosed(absl::Status status) = 0;
};

}  // namespace cohort::rpc
