#include "head/services/node_log.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "common/status_util.h"
#include "rpc/methods.h"

namespace cohort::head {
namespace {

using FindLog = std::function<absl::StatusOr<std::shared_ptr<NodeLog>>(
    const v1::LogRead& read)>;

// A node's call: its first message says for which log it is.
class LogCall final : public rpc::StreamReader<v1::LogMessage> {
 public:
  LogCall(FindLog find, rpc::Principal principal,
          std::unique_ptr<NodeLog::Call> call)
      : find_(std::move(find)),
        principal_(std::move(principal)),
        call_(std::move(call)) {}

  void OnMessage(const v1::LogMessage& message) override {
    if (call_ != nullptr) return Begin(message);
    // Without one the reader is gone, and with it the call.
    const std::shared_ptr<NodeLog> log = log_.lock();
    if (log == nullptr) return;
    if (message.has_piece()) return log->Take(message.piece());
    log->Fail(absl::InvalidArgumentError("a log's call brings pieces"));
  }

  void OnClosed(absl::Status) override {
    if (const auto log = log_.lock(); log != nullptr) log->FailAway();
  }

 private:
  void Begin(const v1::LogMessage& message) {
    std::unique_ptr<NodeLog::Call> call = std::move(call_);
    if (!message.has_read()) {
      return call->Close(absl::InvalidArgumentError(
          "the first message of a log's call names the read"));
    }
    const absl::Status may =
        rpc::CheckSpeaksFor(principal_, message.read().node_id());
    if (!may.ok()) return call->Close(may);
    const auto log = find_(message.read());
    if (!log.ok()) return call->Close(log.status());
    if ((*log)->Begin(std::move(call))) log_ = *log;
  }

  const FindLog find_;
  const rpc::Principal principal_;
  std::unique_ptr<NodeLog::Call> call_;  // until the first message
  std::weak_ptr<NodeLog> log_;
};

}  // namespace

NodeLog::NodeLog(Executor& strand, std::string node_name, OnPiece on_piece,
                 std::shared_ptr<const void> large)
    : strand_(strand),
      node_name_(std::move(node_name)),
      on_piece_(std::move(on_piece)),
      large_(std::move(large)) {}

NodeLog::~NodeLog() {
  if (call_ != nullptr) call_->Close(absl::OkStatus());
}

void NodeLog::Next(int64_t offset) {
  asked_ = true;
  if (!failure_.ok()) return AnswerWithFailure();
  v1::NextLogPiece next;
  next.set_offset(offset);
  if (!call_->Write(next).ok()) FailAway();
}

void NodeLog::AwaitCall() {
  strand_.PostAfter(kCallTimeout, [weak = weak_from_this()] {
    const std::shared_ptr<NodeLog> self = weak.lock();
    if (self == nullptr || self->call_ != nullptr) return;
    // A follower asks again: the node's other connection may have been cut.
    self->Fail(SetReason(
        absl::UnavailableError(absl::StrCat(
            "node ", self->node_name_, " did not begin to send a log ",
            "within ", absl::FormatDuration(kCallTimeout))),
        kNodeAway));
  });
}

bool NodeLog::Begin(std::unique_ptr<Call> call) {
  if (!failure_.ok() || call_ != nullptr) {
    call->Close(!failure_.ok() ? failure_
                               : absl::InvalidArgumentError(
                                     "this log has a call already"));
    return false;
  }
  call_ = std::move(call);
  return true;
}

void NodeLog::Take(const v1::LogPiece& piece) {
  if (!failure_.ok()) return;
  if (!std::exchange(asked_, false)) {
    return Fail(absl::InvalidArgumentError(absl::StrCat(
        "node ", node_name_, " sent a piece of a log that was not asked for")));
  }
  if (piece.data().size() > static_cast<size_t>(piece_bytes_max())) {
    asked_ = true;
    return Fail(absl::InvalidArgumentError(absl::StrCat(
        "node ", node_name_, " sent a piece of ", piece.data().size(),
        " bytes of a log: at most ", piece_bytes_max(), " were asked for")));
  }
  on_piece_(&piece);
}

void NodeLog::Fail(const absl::Status& why) {
  if (!failure_.ok()) return;
  failure_ = why;
  if (call_ != nullptr) call_->Close(why);
  if (asked_) AnswerWithFailure();
}

void NodeLog::FailAway() {
  Fail(SetReason(absl::UnavailableError(absl::StrCat(
                     "node ", node_name_, " is away, and its logs with it")),
                 kNodeAway));
}

bool NodeLog::Drop() {
  if (asked_ || !failure_.ok()) return false;
  dropped_ = true;
  failure_ = absl::UnavailableError("the log was dropped");
  call_->Close(absl::OkStatus());
  return true;
}

void NodeLog::AnswerWithFailure() {
  strand_.Post([weak = weak_from_this()] {
    const std::shared_ptr<NodeLog> self = weak.lock();
    if (self == nullptr || !std::exchange(self->asked_, false)) return;
    self->on_piece_(self->failure_);
  });
}

void ServeNodeLogs(rpc::Router& router, Executor& strand, FindLog find) {
  router.HandleStream(
      rpc::kSendLog, strand,
      [find = std::move(find)](const std::shared_ptr<rpc::CallContext>& context,
                               std::unique_ptr<NodeLog::Call> call)
          -> absl::StatusOr<
              std::unique_ptr<rpc::StreamReader<v1::LogMessage>>> {
        return std::make_unique<LogCall>(find, context->principal(),
                                         std::move(call));
      });
}

}  // namespace cohort::head
