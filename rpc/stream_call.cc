#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

#include "common/check.h"
#include "common/executor.h"
#include "common/mutex.h"
#include "common/status_macros.h"
#include "rpc/incoming_call.h"
#include "rpc/receive_queue.h"
#include "rpc/send_queue.h"
#include "rpc/stream.h"

namespace cohort::rpc {
namespace {

// A stream's life: `open` runs on the strand (opening_); then messages are
// read, queued and handled in turns; then it is over (over_ says why), which
// the reader hears after what was received before, and what is queued to be
// sent still goes out when this side closed it as OK.
class StreamCall final : public IncomingCall,
                         public StreamSink,
                         public std::enable_shared_from_this<StreamCall> {
 public:
  StreamCall(std::shared_ptr<RouterCore> router_core, Admitted admitted,
             const CallInfo& info, ServerTransport& transport)
      : IncomingCall(std::move(router_core), std::move(admitted), info,
                     transport),
        out_(core().options().stream_queue_messages_max,
             core().options().stream_queue_bytes_max),
        in_(core().options().stream_window_messages,
            core().options().stream_window_bytes) {}

  void Start() override {
    Post(Turn<&StreamCall::OpenOnStrand>(shared_from_this()));
  }

  // ServerCall.
  void OnRead(std::optional<absl::string_view> message) override;
  void OnWriteDone(bool ok) override;
  void OnCancelled() override;
  void Abandon() override;

  // IncomingCall.
  void End(absl::Status status) override;

  // StreamSink.
  absl::Status Write(const google::protobuf::MessageLite& message) override;
  void Close(absl::Status status) override;
  size_t QueuedBytes() const override;
  void SetOnDrained(absl::AnyInvocable<void()> callback) override;

 private:
  using Reader = Router::RawReader;
  using ReceivedMessage = std::unique_ptr<Router::Message>;

  // A turn on the strand, which calls `run`: as small as a task holds without
  // an allocation.  Dropped unrun, as by a strand that has stopped, it ends the
  // stream without its reader.
  template <void (StreamCall::*run)()>
  class Turn {
   public:
    explicit Turn(std::shared_ptr<StreamCall> call) : call_(std::move(call)) {}
    Turn(Turn&&) = default;
    ~Turn() {
      if (call_ != nullptr) call_->StrandGone();
    }
    void operator()() && {
      const std::shared_ptr<StreamCall> call = std::move(call_);
      ((*call).*run)();
    }

   private:
    std::shared_ptr<StreamCall> call_;
  };

  // What a turn does next.
  struct Step {
    enum { kNothing, kMessage, kHalfClosed, kDrained, kClosed } kind = kNothing;
    ReceivedMessage message;
    // Shared: SetOnDrained may replace it while it runs.
    std::shared_ptr<absl::AnyInvocable<void()>> drained;
    absl::Status status;
  };

  // On the strand.
  void OpenOnStrand();
  void TakeTurn();
  void TakeBatchTurn();
  Step NextStep() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Run(Step step);

  void StrandGone();
  // The reader, when no turn is using it; the caller destroys it unlocked.
  std::unique_ptr<Reader> TakeReader() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndLocked(absl::Status status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FinishIfFlushed() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void MaybeRead() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void MaybeWrite() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether the caller must post a turn, which it does without the lock.
  bool NeedsTurn() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void PostTurn() { Post(Turn<&StreamCall::TakeTurn>(shared_from_this())); }
  // The same after a message that may wait.
  bool NeedsBatchTurn() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void PostBatchTurn() {
    method().batch_line->Post(
        Turn<&StreamCall::TakeBatchTurn>(shared_from_this()));
  }

  SendQueue out_ ABSL_GUARDED_BY(mutex_);
  ReceiveQueue<ReceivedMessage> in_ ABSL_GUARDED_BY(mutex_);
  // Why the stream is over, once it is.
  std::optional<absl::Status> over_ ABSL_GUARDED_BY(mutex_);
  bool opening_ ABSL_GUARDED_BY(mutex_) = true;
  bool reading_ ABSL_GUARDED_BY(mutex_) = false;
  bool half_closed_ ABSL_GUARDED_BY(mutex_) = false;
  bool half_closed_told_ ABSL_GUARDED_BY(mutex_) = false;
  bool drained_ ABSL_GUARDED_BY(mutex_) = false;
  // A turn is posted or runs.
  bool turn_ ABSL_GUARDED_BY(mutex_) = false;
  // One is posted for messages that may wait.
  bool batch_turn_ ABSL_GUARDED_BY(mutex_) = false;
  // Shared: the turn that runs it and this.
  std::shared_ptr<absl::AnyInvocable<void()>> on_drained_
      ABSL_GUARDED_BY(mutex_);
  // Set by open, taken by the step kClosed (or by the step that finds the
  // strand gone).  Only turns call it.
  std::unique_ptr<Reader> reader_ ABSL_GUARDED_BY(mutex_);
  // A turn is calling reader_.
  bool in_reader_ ABSL_GUARDED_BY(mutex_) = false;
};

void StreamCall::OpenOnStrand() {
  if (IsLate()) OnCancelled();
  {
    MutexLock lock(mutex_);
    if (over_.has_value() || transport_ == nullptr) return;  // RT-2.
  }
  absl::StatusOr<std::unique_ptr<Reader>> reader =
      method().open(shared_from_this(), shared_from_this());

  bool post = false;
  {
    MutexLock lock(mutex_);
    opening_ = false;
    if (transport_ == nullptr && !over_.has_value()) return;  // Abandoned.
    if (!reader.ok()) {
      // The writer that `open` got and dropped has closed the stream; what
      // `open` says is the better reason.
      over_ = reader.status();
    } else {
      reader_ = *std::move(reader);
      post = NeedsTurn();
    }
    if (over_.has_value()) FinishIfFlushed();
    MaybeRead();
  }
  if (post) PostTurn();
}

void StreamCall::OnRead(std::optional<absl::string_view> bytes) {
  ReceivedMessage message;
  absl::Status refusal;
  bool may_wait = false;
  if (bytes.has_value()) {
    if (bytes->size() > core().options().message_bytes_max) {
      refusal = absl::ResourceExhaustedError(absl::StrCat(
          "a message of ", bytes->size(), " bytes on ", method().path,
          " is over the limit of ", core().options().message_bytes_max));
    } else {
      message.reset(method().new_message(nullptr));
      if (!message->ParseFromArray(bytes->data(),
                                   static_cast<int>(bytes->size()))) {
        refusal = absl::InvalidArgumentError(
            absl::StrCat("a message on ", method().path, " cannot be decoded"));
      } else if (method().may_wait != nullptr) {
        may_wait = method().may_wait(*message);
      }
    }
  }
  bool post = false;
  bool post_batch = false;
  {
    MutexLock lock(mutex_);
    reading_ = false;
    if (over_.has_value() || transport_ == nullptr) return;
    if (!bytes.has_value()) {
      half_closed_ = true;
    } else if (!refusal.ok()) {
      EndLocked(refusal);
    } else {
      in_.Push(std::move(message), bytes->size());
      // With the window full the next message is not seen, and may be urgent.
      may_wait = may_wait && in_.HasRoom();
      MaybeRead();
    }
    if (may_wait) {
      post_batch = NeedsBatchTurn();
    } else {
      post = NeedsTurn();
    }
  }
  if (post) PostTurn();
  if (post_batch) PostBatchTurn();
}

void StreamCall::OnWriteDone(bool ok) {
  bool post = false;
  {
    MutexLock lock(mutex_);
    out_.WriteDone();
    if (transport_ == nullptr) return;
    if (!ok) out_.Clear();  // The peer is gone; OnCancelled follows.
    MaybeWrite();
    if (out_.Idle()) drained_ = true;
    if (over_.has_value() && !opening_) FinishIfFlushed();
    post = NeedsTurn();
  }
  if (post) PostTurn();
}

void StreamCall::OnCancelled() {
  End(CancelStatus(
      absl::UnavailableError("the client cancelled or went away")));
}

void StreamCall::End(absl::Status status) {
  absl::AnyInvocable<void() &&> callback;
  bool post = false;
  {
    MutexLock lock(mutex_);
    if (transport_ == nullptr) return;
    callback = CancelLocked();
    if (!over_.has_value()) over_ = std::move(status);
    out_.Clear();
    FinishIfFlushed();
    post = NeedsTurn();
  }
  PostUnlessNull(std::move(callback));
  if (post) PostTurn();
}

void StreamCall::Abandon() {
  absl::AnyInvocable<void() &&> dropped;
  std::shared_ptr<absl::AnyInvocable<void()>> drained;
  std::unique_ptr<Reader> reader;
  MutexLock lock(mutex_);
  dropped = CancelLocked();
  drained = std::move(on_drained_);
  transport_ = nullptr;
  over_.reset();
  in_.Clear();
  out_.Clear();
  reader = TakeReader();
}

absl::Status StreamCall::Write(const google::protobuf::MessageLite& message) {
  std::string bytes;
  if (!message.SerializeToString(&bytes)) {
    COHORT_BUG(absl::StrCat("unserialisable message on ", method().path));
    return absl::InternalError("the message cannot be encoded");
  }
  if (bytes.size() > core().options().message_bytes_max) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a message of ", bytes.size(), " bytes on ", method().path,
        " is over the limit of ", core().options().message_bytes_max));
  }
  MutexLock lock(mutex_);
  if (over_.has_value() || transport_ == nullptr) {
    return absl::UnavailableError("the stream is over");
  }
  COHORT_RETURN_IF_ERROR(out_.Push(std::move(bytes)));
  drained_ = false;
  MaybeWrite();
  return absl::OkStatus();
}

void StreamCall::Close(absl::Status status) {
  bool post = false;
  {
    MutexLock lock(mutex_);
    if (over_.has_value() || transport_ == nullptr) return;
    in_.Clear();
    EndLocked(std::move(status));
    post = NeedsTurn();
  }
  if (post) PostTurn();
}

size_t StreamCall::QueuedBytes() const {
  MutexLock lock(mutex_);
  return out_.bytes();
}

void StreamCall::SetOnDrained(absl::AnyInvocable<void()> callback) {
  auto shared =
      std::make_shared<absl::AnyInvocable<void()>>(std::move(callback));
  MutexLock lock(mutex_);
  if (over_.has_value() || transport_ == nullptr) return;
  std::swap(on_drained_, shared);
}

void StreamCall::TakeTurn() {
  for (int i = 0; i < kMessagesPerTurn; ++i) {
    Step step;
    {
      MutexLock lock(mutex_);
      step = NextStep();
      if (step.kind == Step::kNothing) {
        turn_ = false;
        return;
      }
      in_reader_ = true;
    }
    Run(std::move(step));
    std::unique_ptr<Reader> abandoned;
    MutexLock lock(mutex_);
    in_reader_ = false;
    if (transport_ == nullptr && !over_.has_value()) {
      abandoned = TakeReader();
    }
  }
  PostTurn();
}

void StreamCall::TakeBatchTurn() {
  {
    MutexLock lock(mutex_);
    batch_turn_ = false;
    if (turn_) return;  // Which handles what waited for this one.
    turn_ = true;
  }
  TakeTurn();
}

StreamCall::Step StreamCall::NextStep() {
  Step step;
  if (reader_ == nullptr) return step;
  if (!in_.empty()) {
    step.kind = Step::kMessage;
    step.message = in_.Pop();
    MaybeRead();
  } else if (half_closed_ && !half_closed_told_ && !over_.has_value()) {
    half_closed_told_ = true;
    step.kind = Step::kHalfClosed;
  } else if (over_.has_value()) {
    step.kind = Step::kClosed;
    step.status = *over_;
    step.drained = std::move(on_drained_);
  } else if (drained_ && on_drained_ != nullptr) {
    drained_ = false;
    step.kind = Step::kDrained;
    step.drained = on_drained_;
  }
  return step;
}

void StreamCall::Run(Step step) {
  Reader* reader = nullptr;
  std::unique_ptr<Reader> last;
  {
    MutexLock lock(mutex_);
    if (step.kind == Step::kClosed) last = std::move(reader_);
    reader = last != nullptr ? last.get() : reader_.get();
  }
  if (reader == nullptr) return;
  switch (step.kind) {
    case Step::kNothing:
      break;
    case Step::kMessage:
      reader->OnMessage(*step.message);
      break;
    case Step::kHalfClosed:
      reader->OnHalfClosed();
      break;
    case Step::kDrained:
      (*step.drained)();
      break;
    case Step::kClosed:
      reader->OnClosed(std::move(step.status));
      break;
  }
}

void StreamCall::StrandGone() {
  std::unique_ptr<Reader> reader;
  std::shared_ptr<absl::AnyInvocable<void()>> drained;
  MutexLock lock(mutex_);
  drained = std::move(on_drained_);
  reader = TakeReader();
  opening_ = false;
  if (!over_.has_value() && transport_ != nullptr) {
    EndLocked(absl::UnavailableError("the server is shutting down"));
  }
}

std::unique_ptr<StreamCall::Reader> StreamCall::TakeReader() {
  if (in_reader_) return nullptr;  // The turn destroys it.
  return std::move(reader_);
}

void StreamCall::EndLocked(absl::Status status) {
  over_ = std::move(status);
  if (!over_->ok()) out_.Clear();
  if (!opening_) FinishIfFlushed();
}

void StreamCall::FinishIfFlushed() {
  if (transport_ == nullptr || !out_.Idle()) return;
  FinishLocked(*over_, std::nullopt);
}

void StreamCall::MaybeRead() {
  if (transport_ == nullptr || opening_ || reading_ || half_closed_ ||
      over_.has_value() || !in_.HasRoom()) {
    return;
  }
  reading_ = true;
  transport_->StartRead();
}

void StreamCall::MaybeWrite() {
  if (transport_ == nullptr || !out_.Ready()) return;
  std::string message = out_.Take();
  transport_->StartWrite(std::move(message), out_.HasMore());
}

bool StreamCall::NeedsTurn() {
  if (turn_ || reader_ == nullptr) return false;
  const bool something = !in_.empty() || over_.has_value() ||
                         (half_closed_ && !half_closed_told_) ||
                         (drained_ && on_drained_ != nullptr);
  if (something) turn_ = true;
  return something;
}

bool StreamCall::NeedsBatchTurn() {
  if (turn_ || reader_ == nullptr) return false;
  return !std::exchange(batch_turn_, true);
}

}  // namespace

std::shared_ptr<IncomingCall> NewStreamCall(std::shared_ptr<RouterCore> core,
                                            Admitted admitted,
                                            const CallInfo& info,
                                            ServerTransport& transport) {
  return std::make_shared<StreamCall>(std::move(core), std::move(admitted),
                                      info, transport);
}

}  // namespace cohort::rpc
