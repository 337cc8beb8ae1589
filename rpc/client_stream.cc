#include "rpc/client_stream.h"

#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"

namespace cohort::rpc {
namespace {

class HeldStream final : public ClientStream {
 public:
  explicit HeldStream(std::shared_ptr<OutgoingStream> stream)
      : stream_(std::move(stream)) {}
  ~HeldStream() override { stream_->Detach(); }

  absl::Status Write(std::string message) override {
    return stream_->Write(std::move(message));
  }
  void HalfClose() override { stream_->HalfClose(); }
  void Cancel() override { stream_->Cancel(); }
  size_t QueuedBytes() const override { return stream_->QueuedBytes(); }

 private:
  const std::shared_ptr<OutgoingStream> stream_;
};

}  // namespace

std::unique_ptr<ClientStream> HoldStream(
    std::shared_ptr<OutgoingStream> stream) {
  return std::make_unique<HeldStream>(std::move(stream));
}

OutgoingStream::OutgoingStream(const ChannelOptions& options, Executor& where,
                               StreamEvents events)
    : message_bytes_max_(options.message_bytes_max),
      where_(where),
      out_(options.stream_queue_messages_max, options.stream_queue_bytes_max),
      in_(options.stream_window_messages, options.stream_window_bytes),
      events_(std::move(events)) {}

void OutgoingStream::Start(ClientTransport& transport) {
  MutexLock lock(mutex_);
  transport_ = &transport;
  MaybeRead();
}

void OutgoingStream::OnRead(std::optional<std::string> message) {
  bool post = false;
  {
    MutexLock lock(mutex_);
    reading_ = false;
    if (transport_ == nullptr) return;
    if (!message.has_value() || cancelled_) {
      out_.Clear();
      std::exchange(transport_, nullptr)->Release();
    } else if (message->size() > message_bytes_max_) {
      refused_ = absl::ResourceExhaustedError(absl::StrCat(
          "a message of ", message->size(),
          " bytes from the server is over the limit of ", message_bytes_max_));
      CancelLocked();
    } else {
      const size_t bytes = message->size();
      in_.Push(*std::move(message), bytes);
      MaybeRead();
      post = NeedsTurn();
    }
  }
  if (post) PostTurn();
}

void OutgoingStream::OnWriteDone(bool ok) {
  bool post = false;
  {
    MutexLock lock(mutex_);
    out_.WriteDone();
    if (!ok) out_.Clear();  // The stream is over; OnRead says so.
    MaybeWrite();
    if (out_.Idle()) drained_ = true;
    post = NeedsTurn();
  }
  if (post) PostTurn();
}

void OutgoingStream::OnEnded(absl::Status status, std::optional<Stamp> stamp) {
  bool post = false;
  {
    MutexLock lock(mutex_);
    ended_ =
        Ended{refused_.ok() ? std::move(status) : refused_, std::move(stamp)};
    post = NeedsTurn();
  }
  if (post) PostTurn();
}

void OutgoingStream::Abandon() {
  StreamEvents dropped;
  MutexLock lock(mutex_);
  transport_ = nullptr;
  detached_ = true;
  in_.Clear();
  out_.Clear();
  if (!in_event_) std::swap(dropped, events_);
}

absl::Status OutgoingStream::Write(std::string message) {
  MutexLock lock(mutex_);
  if (half_close_) {
    return absl::FailedPreconditionError("the stream was half-closed here");
  }
  if (transport_ == nullptr || cancelled_) {
    return absl::UnavailableError("the stream is over");
  }
  absl::Status status = out_.Push(std::move(message));
  if (!status.ok()) return status;
  drained_ = false;
  MaybeWrite();
  return absl::OkStatus();
}

void OutgoingStream::HalfClose() {
  MutexLock lock(mutex_);
  half_close_ = true;
  MaybeWrite();
}

void OutgoingStream::Cancel() {
  MutexLock lock(mutex_);
  CancelLocked();
}

size_t OutgoingStream::QueuedBytes() const {
  MutexLock lock(mutex_);
  return out_.bytes();
}

void OutgoingStream::Detach() {
  // Destroyed unlocked: what the events captured may call back.
  StreamEvents dropped;
  MutexLock lock(mutex_);
  detached_ = true;
  CancelLocked();
  // Within an event the turn drops them.
  if (in_event_ && event_thread_ == std::this_thread::get_id()) return;
  while (in_event_) event_over_.Wait(mutex_);
  std::swap(dropped, events_);
}

void OutgoingStream::TakeTurn() {
  for (int i = 0; i < kMessagesPerTurn; ++i) {
    Step step;
    {
      MutexLock lock(mutex_);
      step = NextStep();
      if (step.kind == Step::kNothing) {
        turn_ = false;
        return;
      }
      in_event_ = true;
      event_thread_ = std::this_thread::get_id();
    }
    Run(std::move(step));
    StreamEvents dropped;
    MutexLock lock(mutex_);
    in_event_ = false;
    event_over_.SignalAll();
    if (detached_) std::swap(dropped, events_);
  }
  PostTurn();
}

OutgoingStream::Step OutgoingStream::NextStep() {
  Step step;
  if (detached_) return step;
  if (!in_.empty()) {
    step.kind = Step::kMessage;
    step.message = in_.Pop();
    MaybeRead();
  } else if (ended_.has_value()) {
    step.kind = Step::kClosed;
  } else if (drained_ && events_.on_drained != nullptr) {
    drained_ = false;
    step.kind = Step::kDrained;
  }
  return step;
}

void OutgoingStream::Run(Step step) {
  switch (step.kind) {
    case Step::kNothing:
      break;
    case Step::kMessage: {
      absl::Status status = events_.on_message(step.message);
      if (status.ok()) break;
      MutexLock lock(mutex_);
      if (refused_.ok()) refused_ = std::move(status);
      if (ended_.has_value()) ended_->status = refused_;
      CancelLocked();
      break;
    }
    case Step::kDrained:
      events_.on_drained();
      break;
    case Step::kClosed: {
      Ended ended;
      {
        MutexLock lock(mutex_);
        ended = *std::move(ended_);
        detached_ = true;  // The last event.
      }
      std::move(events_.on_closed)(std::move(ended.status),
                                   std::move(ended.stamp));
      break;
    }
  }
}

void OutgoingStream::CancelLocked() {
  in_.Clear();
  out_.Clear();
  if (transport_ == nullptr || cancelled_) return;
  cancelled_ = true;
  transport_->StartCancel();
  // With a read open its failure leads to Release.
  if (!reading_) std::exchange(transport_, nullptr)->Release();
}

void OutgoingStream::MaybeRead() {
  if (transport_ == nullptr || reading_ || cancelled_ || !in_.HasRoom()) return;
  reading_ = true;
  transport_->StartRead();
}

void OutgoingStream::MaybeWrite() {
  if (transport_ == nullptr || cancelled_) return;
  if (out_.Ready()) {
    std::string message = out_.Take();
    transport_->StartWrite(std::move(message), out_.HasMore());
  } else if (half_close_ && !half_closed_ && out_.Idle()) {
    half_closed_ = true;
    transport_->StartHalfClose();
  }
}

bool OutgoingStream::NeedsTurn() {
  if (turn_ || detached_) return false;
  turn_ = !in_.empty() || ended_.has_value() ||
          (drained_ && events_.on_drained != nullptr);
  return turn_;
}

void OutgoingStream::PostTurn() {
  where_.Post([self = shared_from_this()] { self->TakeTurn(); });
}

}  // namespace cohort::rpc
