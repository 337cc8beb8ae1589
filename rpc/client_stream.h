#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"

#include "common/executor.h"
#include "common/mutex.h"
#include "rpc/channel.h"
#include "rpc/receive_queue.h"
#include "rpc/send_queue.h"
#include "rpc/stamp.h"

namespace cohort::rpc {

// A transport's end of an outgoing stream; mirrors ServerTransport.  Never
// calls back into the OutgoingStream from within a method.
class ClientTransport {
 public:
  virtual ~ClientTransport() = default;

  // OutgoingStream::OnRead answers.  At most one open.
  virtual void StartRead() = 0;
  // OutgoingStream::OnWriteDone answers.  At most one open.
  virtual void StartWrite(std::string message, bool more_follow) = 0;
  // After the last write was done.
  virtual void StartHalfClose() = 0;
  // The open read fails, if there is one.
  virtual void StartCancel() = 0;
  // Nothing is called any more; the transport may be gone when this returns.
  // OnEnded follows it.
  virtual void Release() = 0;
};

// The client's end of a stream, whatever carries it: queues, flow control, and
// the events on their executor.  Thread-safe.
//
// Shared by the ClientStream that the caller holds, the transport and the turns
// on the executor.
class OutgoingStream : public std::enable_shared_from_this<OutgoingStream> {
 public:
  // `where` outlives it.
  OutgoingStream(const ChannelOptions& options, Executor& where,
                 StreamEvents events);

  // Begins to read.  Called once; `transport` lives until Release.
  void Start(ClientTransport& transport);

  // For the transport.
  // The next message, or nullopt: there will be no more.
  void OnRead(std::optional<std::string> message);
  void OnWriteDone(bool ok);
  // Once, after Release.
  void OnEnded(absl::Status status, std::optional<Stamp> stamp);
  // The process that holds this end is dead: no event runs any more.
  void Abandon();

  // For the caller's ClientStream.
  absl::Status Write(std::string message);
  void HalfClose();
  void Cancel();
  size_t QueuedBytes() const;
  // See ~ClientStream.
  void Detach();

 private:
  struct Ended {
    absl::Status status;
    std::optional<Stamp> stamp;
  };
  struct Step {
    enum { kNothing, kMessage, kDrained, kClosed } kind = kNothing;
    std::string message;
  };

  void TakeTurn();
  Step NextStep() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Run(Step step);

  void CancelLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void MaybeRead() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void MaybeWrite() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool NeedsTurn() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void PostTurn();

  const size_t message_bytes_max_;
  Executor& where_;

  mutable Mutex mutex_;
  // Null before Start and after Release.
  ClientTransport* transport_ ABSL_GUARDED_BY(mutex_) = nullptr;
  SendQueue out_ ABSL_GUARDED_BY(mutex_);
  ReceiveQueue<std::string> in_ ABSL_GUARDED_BY(mutex_);
  bool reading_ ABSL_GUARDED_BY(mutex_) = false;
  bool half_close_ ABSL_GUARDED_BY(mutex_) = false;
  bool half_closed_ ABSL_GUARDED_BY(mutex_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  bool detached_ ABSL_GUARDED_BY(mutex_) = false;
  bool drained_ ABSL_GUARDED_BY(mutex_) = false;
  // What on_message said, if it ended the stream.
  absl::Status refused_ ABSL_GUARDED_BY(mutex_);
  std::optional<Ended> ended_ ABSL_GUARDED_BY(mutex_);
  // A turn is posted or runs.
  bool turn_ ABSL_GUARDED_BY(mutex_) = false;
  // A turn is calling events_, on this thread.
  bool in_event_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread::id event_thread_ ABSL_GUARDED_BY(mutex_);
  // Signalled when it is not any more.
  CondVar event_over_;

  // Called by turns; destroyed by the last one, by Detach, or with this.
  StreamEvents events_;
};

// The caller's hold on `stream`.
std::unique_ptr<ClientStream> HoldStream(
    std::shared_ptr<OutgoingStream> stream);

}  // namespace cohort::rpc
