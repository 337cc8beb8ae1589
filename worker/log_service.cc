#include "worker/log_service.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

#include "cohort/v1/cluster.pb.h"
#include "common/log.h"
#include "rpc/methods.h"
#include "worker/run_file_reader.h"
#include "worker/served_calls_reader.h"
#include "worker/stack_reader.h"

namespace cohort::worker {
namespace {

// How soon a follower looks for more: a quarter of the time that it has waited,
// between these.  What comes soon is shown soon; at a quiet log it looks 20
// times a second.
constexpr absl::Duration kPollMin = absl::Milliseconds(2);
constexpr absl::Duration kPollMax = absl::Milliseconds(50);
// After this long a question that waits is answered with nothing, so that the
// asker knows that we live.
constexpr absl::Duration kWaitMax = absl::Seconds(10);
// And so long for a log that has not begun: it may be that it never will.
constexpr absl::Duration kBeginMax = absl::Seconds(1);
// Of one piece.
constexpr int32_t kBytesMax = 256 << 10;

int32_t PieceBytes(const v1::SendLog& order) {
  return order.max_bytes() > 0 ? std::min(order.max_bytes(), kBytesMax)
                               : kBytesMax;
}

v1::LogPiece ReadPiece(SlotLogReader& reader, const v1::SendLog& order) {
  v1::LogPiece piece;
  piece.set_offset(order.offset());
  const absl::StatusOr<LogChunk> chunk =
      reader.Read(order.offset(), static_cast<size_t>(PieceBytes(order)));
  if (!chunk.ok()) return piece;
  piece.set_known(true);
  piece.set_offset(static_cast<int64_t>(chunk->offset));
  piece.set_data(chunk->bytes);
  piece.set_end(chunk->eof);
  for (const keeper::LogTime& each : chunk->times) {
    v1::LogTime* const time = piece.add_times();
    time->set_offset(static_cast<int64_t>(each.offset));
    time->set_at_us(each.at_us);
  }
  return piece;
}

}  // namespace

LogService::LogService(const NodeDirectories& directories,
                       const WorkDirectories& work, const NodeId& node,
                       rpc::Channel& channel, Executor& strand, Executor& disk,
                       Executor& bulk)
    : directories_(directories),
      work_(work),
      node_(node),
      channel_(channel),
      strand_(strand),
      disk_(disk),
      bulk_(bulk) {}

void LogService::Send(const v1::Stamp& head, const v1::SendLog& order) {
  if (stopped_) return;
  if (calls_.size() >= kCallsMax) {
    COHORT_LOG(kWarning, "log_not_sent", {"slot", order.slot()},
               {"why", "too many logs are sent already"},
               {"calls", calls_.size()});
    return;
  }
  const uint64_t number = next_++;
  Call& call = calls_[number];
  call.order = order;
  if (order.has_stack_of_pid()) {
    call.instead = std::make_shared<StackReader>(order);
  } else if (order.has_calls()) {
    call.instead = std::make_shared<ServedCallsReader>(
        absl::StrCat(directories_.runtime(), "/",
                     absl::BytesToHexString(order.attempt_id())),
        order);
  } else if (order.has_file() || order.has_list()) {
    call.instead = std::make_shared<RunFileReader>(work_, order);
  } else {
    call.log = std::make_shared<SlotLogReader>(
        directories_.Logs(order.job_id(), order.attempt_number(),
                          order.attempt_id()),
        order.slot(), order.incarnation(), order.stream());
  }
  call.stream = rpc::OpenStream<v1::LogMessage, v1::NextLogPiece>(
      channel_, rpc::kSendLog, {.deadline = absl::InfiniteDuration()}, strand_,
      {.on_message =
           [this, number](const v1::NextLogPiece& next) {
             OnNext(number, next.offset());
           },
       .on_closed = [this, number](absl::Status, auto) { Forget(number); },
       .on_drained = nullptr});
  v1::LogMessage message;
  *message.mutable_read()->mutable_stamp() = head;
  message.mutable_read()->set_node_id(std::string(node_.bytes()));
  message.mutable_read()->set_read_id(order.read_id());
  // A call that is over says so through on_closed, here and below.
  call.stream->Write(message).IgnoreError();
  Read(number, absl::ZeroDuration());
}

void LogService::Forget(uint64_t number) {
  const auto call = calls_.find(number);
  if (call == calls_.end()) return;
  // What reads in place of a log may take a moment to end.
  if (call->second.instead != nullptr) {
    bulk_.Post([instead = std::move(call->second.instead)] {});
  }
  calls_.erase(call);
}

void LogService::Stop() {
  stopped_ = true;
  calls_.clear();
}

void LogService::OnNext(uint64_t number, int64_t offset) {
  const auto call = calls_.find(number);
  if (call == calls_.end()) return;
  if (std::exchange(call->second.reading, true)) return Forget(number);  // LO-1
  call->second.order.set_offset(offset);
  Read(number, absl::ZeroDuration());
}

void LogService::Read(uint64_t number, absl::Duration waited) {
  const auto call = calls_.find(number);
  if (call == calls_.end()) return;  // LO-2
  Executor& where = call->second.instead != nullptr ? bulk_ : disk_;
  const absl::Duration pause = call->second.quiet
                                   ? kPollMax
                                   : std::clamp(waited / 4, kPollMin, kPollMax);
  where.Post([this, number, waited, pause, order = call->second.order,
              instead = call->second.instead, log = call->second.log] {
    absl::StatusOr<LogMark> mark = absl::NotFoundError("not asked for");
    if (log != nullptr && pause == kPollMax) mark = log->Mark();
    v1::LogMessage message;
    v1::LogPiece& piece = *message.mutable_piece();
    piece = instead != nullptr
                ? instead->Read(order.offset(), PieceBytes(order))
                : ReadPiece(*log, order);
    const bool nothing = piece.data().empty() && !piece.end();
    if (nothing && order.wait() &&
        waited < (piece.known() ? kWaitMax : kBeginMax)) {
      strand_.Post([this, number, waited, pause, mark = std::move(mark)] {
        Wait(number, waited, pause, mark);
      });
      return;
    }
    strand_.Post([this, number, message = std::move(message)] {
      OnPiece(number, message);
    });
  });
}

void LogService::Wait(uint64_t number, absl::Duration waited,
                      absl::Duration pause,
                      const absl::StatusOr<LogMark>& mark) {
  const auto found = calls_.find(number);
  if (found == calls_.end()) return;
  Call& call = found->second;
  // No file was made since the look before, which is a while ago.
  const bool rests = mark.ok() && call.mark.has_value() &&
                     call.mark->dir_changed_ns == mark->dir_changed_ns;
  call.mark = mark.ok() ? std::optional(*mark) : std::nullopt;
  if (!rests) {
    strand_.PostAfter(
        pause, [this, number, waited, pause] { Read(number, waited + pause); });
    return;
  }
  call.rested = waited;
  if (!std::exchange(looks_at_resting_, true)) {
    strand_.PostAfter(kPollMax, [this] { LookAtResting(); });
  }
}

void LogService::LookAtResting() {
  struct Look {
    uint64_t number;
    std::shared_ptr<SlotLogReader> log;
    LogMark mark;
    int64_t offset;
  };
  std::vector<Look> looks;
  for (auto& [number, call] : calls_) {
    if (!call.rested.has_value()) continue;
    *call.rested += kPollMax;
    looks.push_back({number, call.log, *call.mark, call.order.offset()});
    if (*call.rested >= kWaitMax) looks.back().log.reset();  // it is answered
  }
  looks_at_resting_ = !looks.empty();
  if (looks.empty()) return;
  disk_.Post([this, looks = std::move(looks)] {
    std::vector<uint64_t> due;
    for (const Look& look : looks) {
      if (look.log == nullptr ||
          look.log->MayHaveMore(look.mark, look.offset)) {
        due.push_back(look.number);
      }
    }
    strand_.Post([this, due = std::move(due)] {
      for (const uint64_t number : due) {
        const auto call = calls_.find(number);
        if (call == calls_.end() || !call->second.rested.has_value()) continue;
        const absl::Duration waited = *call->second.rested;
        call->second.rested.reset();
        Read(number, waited);
      }
      strand_.PostAfter(kPollMax, [this] { LookAtResting(); });
    });
  });
}

void LogService::OnPiece(uint64_t number, const v1::LogMessage& message) {
  const auto call = calls_.find(number);
  if (call == calls_.end()) return;
  call->second.reading = false;
  call->second.quiet =
      message.piece().known() && message.piece().data().empty();
  call->second.stream->Write(message).IgnoreError();
}

}  // namespace cohort::worker
