#include "head/services/log_stream.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/status_util.h"

namespace cohort::head {
namespace {

// Null when the attempt has no such slot, or it was never filled.
const Process* ProcessOf(const AttemptRecord& attempt, int slot) {
  const size_t at = static_cast<size_t>(slot);
  if (at >= attempt.processes.size()) return nullptr;
  const Process& process = attempt.processes[at];
  return process.waits() ? nullptr : &process;
}

}  // namespace

LogStream::LogStream(StateHost& host, NodeService& nodes, LastLogs* last_logs,
                     Executor& strand, std::unique_ptr<Writer> writer)
    : host_(host),
      nodes_(nodes),
      last_logs_(last_logs),
      strand_(strand),
      writer_(std::move(writer)) {}

void LogStream::Begin(const v1::ReadLogRequest& request) {
  begun_ = true;
  const absl::Status status = CheckRequest(request);
  if (!status.ok()) return Close(status);
  writer_->SetOnDrained([weak = weak_from_this()] {
    const std::shared_ptr<LogStream> self = weak.lock();
    if (self == nullptr || !std::exchange(self->draining_, false)) return;
    self->Step();
  });
  Step();
}

absl::Status LogStream::CheckRequest(const v1::ReadLogRequest& request) {
  const absl::StatusOr<JobId> job = JobId::FromBytes(request.job_id());
  if (!job.ok()) return job.status();
  const absl::StatusOr<const ClusterState*> state = host_.Readable();
  if (!state.ok()) return state.status();
  const JobRecord* record = (*state)->jobs().Find(*job);
  if (record == nullptr) return (*state)->NoJob(*job);
  if (request.rank() < 0 || request.rank() >= record->row.num_workers()) {
    return absl::NotFoundError(
        absl::StrCat("job ", job->ToText(), " has no rank ", request.rank(),
                     ": it has ", record->row.num_workers()));
  }
  if (request.attempt() < 0 || request.attempt() > record->row.attempts()) {
    return absl::NotFoundError(
        absl::StrCat("job ", job->ToText(), " has no attempt ",
                     request.attempt(), ": it has ", record->row.attempts()));
  }
  if (!v1::LogStream_IsValid(request.stream())) {
    return absl::InvalidArgumentError(
        absl::StrCat("log stream ", static_cast<int>(request.stream()),
                     " is not known here"));
  }
  job_ = *job;
  rank_ = request.rank();
  stream_ = request.stream() == v1::LOG_STREAM_UNSPECIFIED
                ? v1::LOG_STREAM_STDOUT
                : request.stream();
  follow_ = request.follow();
  offset_ = request.offset();
  attempt_ = request.attempt() > 0 ? request.attempt() : record->row.attempts();
  return absl::OkStatus();
}

void LogStream::Wake() {
  if (std::exchange(waiting_, false)) Step();
}

void LogStream::Step() {
  if (closed_ || asking_ || draining_) return;
  if (finished_) return Next();
  const absl::StatusOr<const ClusterState*> state = host_.Readable();
  if (!state.ok()) return Close(state.status());
  const JobRecord* job = (*state)->jobs().Find(job_);
  if (job == nullptr) {
    return Close(absl::NotFoundError(absl::StrCat(
        "job ", job_.ToText(), " is not remembered here any more")));
  }
  if (attempt_ == 0) attempt_ = std::min(job->row.attempts(), 1);
  if (attempt_ == 0) {
    if (!follow_ || HasEnded(job->row.state())) return Close(absl::OkStatus());
    waiting_ = true;
    return;
  }
  const AttemptRecord* attempt = (*state)->attempts().OfJob(job_, attempt_);
  const Process* process =
      attempt == nullptr ? nullptr : ProcessOf(*attempt, rank_);
  if (process == nullptr) return Next();  // trimmed, or its slot waits
  if (incarnation_ != process->incarnation) {
    // A node has what its processes of a slot wrote in one row.
    if (incarnation_ != 0) {
      offset_ = process->node == node_ ? std::max<int64_t>(offset_, 0) : 0;
    }
    node_ = process->node;
    incarnation_ = process->incarnation;
    log_.reset();
  }
  Ask(attempt->id, process->node);
}

void LogStream::Ask(const AttemptId& attempt, const NodeId& node) {
  asking_ = true;
  attempt_id_ = attempt;
  if (log_ != nullptr && !log_->dropped()) return log_->Next(offset_);
  v1::SendLog order;
  order.set_attempt_id(std::string(attempt.bytes()));
  order.set_job_id(std::string(job_.bytes()));
  order.set_attempt_number(attempt_);
  order.set_slot(rank_);
  order.set_incarnation(incarnation_);
  order.set_stream(stream_);
  order.set_offset(offset_);
  order.set_wait(follow_);
  log_ = nodes_.OpenLog(node, std::move(order),
                        [weak = weak_from_this()](const auto& answer) {
                          const std::shared_ptr<LogStream> self = weak.lock();
                          if (self != nullptr) self->OnAnswer(answer);
                        });
}

void LogStream::OnAnswer(const absl::StatusOr<const v1::LogPiece*>& answer) {
  asking_ = false;
  if (closed_) return;
  if (!answer.ok()) return OnUnavailable(answer.status());
  const v1::LogPiece& piece = **answer;
  away_retries_ = 0;
  if (!piece.data().empty() && !Send(piece)) return;
  if (piece.end()) return Next();
  if (!piece.known()) return OnUnknown();
  if (piece.data().empty() && !follow_) return Close(absl::OkStatus());
  Step();
}

bool LogStream::Send(const v1::LogPiece& piece, const std::string& gone_node) {
  v1::ReadLogResponse response;
  response.set_gone_node(gone_node);
  response.set_attempt(attempt_);
  response.set_offset(piece.offset());
  response.set_data(piece.data());
  if (offset_ >= 0) {
    response.set_skipped(std::max<int64_t>(piece.offset() - offset_, 0));
  }
  if (piece.times_size() <= kTimesMax)
    *response.mutable_times() = piece.times();
  offset_ = piece.offset() + static_cast<int64_t>(piece.data().size());
  draining_ = true;  // LG-1
  const absl::Status status = writer_->Write(response);
  if (!status.ok()) Close(status);
  return status.ok();
}

void LogStream::OnUnavailable(const absl::Status& status) {
  log_.reset();
  if (last_logs_ == nullptr || GetReason(status) != kNodeAway) {
    return OnNowhere(status);
  }
  asking_ = true;
  last_logs_->Read({.attempt = attempt_id_,
                    .slot = rank_,
                    .incarnation = incarnation_,
                    .stream = stream_},
                   offset_,
                   [weak = weak_from_this(),
                    status](const absl::StatusOr<LastLogs::Found>& found) {
                     const std::shared_ptr<LogStream> self = weak.lock();
                     if (self == nullptr || self->closed_) return;
                     self->asking_ = false;
                     found.ok() ? self->OnKept(*found)
                                : self->OnNowhere(status);
                   });
}

void LogStream::OnKept(const LastLogs::Found& found) {
  if (!found.piece.data().empty() && !Send(found.piece, found.node_name)) {
    return;
  }
  if (found.piece.end()) return Next();
  Step();
}

void LogStream::OnNowhere(const absl::Status& status) {
  const absl::StatusOr<const ClusterState*> state = host_.Readable();
  const JobRecord* job = state.ok() ? (*state)->jobs().Find(job_) : nullptr;
  if (GetReason(status) != kNodeAway || !follow_ || job == nullptr) {
    return Close(Told(status));
  }
  // With the node its log is away; what follows on other nodes is not.
  if (attempt_ < job->row.attempts() || HasLaterProcess(**state)) return Next();
  if (HasEnded(job->row.state())) return Close(Told(status));
  // Its next attempt may still come.
  if (++away_retries_ > kAwayRetriesMax) return Close(status);
  RetryLater();
}

// What is away and does not come back is gone.
absl::Status LogStream::Told(const absl::Status& status) {
  const absl::StatusOr<const ClusterState*> state = host_.Readable();
  if (GetReason(status) != kNodeAway || !state.ok() ||
      !(*state)->IsGoneForGood(node_)) {
    return status;
  }
  return SetReason(absl::NotFoundError(absl::StrCat(
                       "node ", (*state)->nodes().Find(node_)->node.name(),
                       " has ended, and the log of rank ", rank_,
                       " of attempt ", attempt_, " with it")),
                   kNodeGone);
}

void LogStream::OnUnknown() {
  const absl::StatusOr<const ClusterState*> state = host_.Readable();
  if (!state.ok()) return Close(state.status());
  const AttemptRecord* attempt = (*state)->attempts().OfJob(job_, attempt_);
  const Process* process =
      attempt == nullptr ? nullptr : ProcessOf(*attempt, rank_);
  // No log, and none will come.
  if (process == nullptr || process->over() || !follow_ ||
      attempt->state == v1::ATTEMPT_STATE_ENDED) {
    return Next();
  }
  RetryLater();
}

void LogStream::RetryLater() {
  asking_ = true;  // nothing else asks meanwhile
  strand_.PostAfter(kRetryDelay, [weak = weak_from_this()] {
    const std::shared_ptr<LogStream> self = weak.lock();
    if (self == nullptr) return;
    self->asking_ = false;
    self->Step();
  });
}

bool LogStream::HasLaterProcess(const ClusterState& state) const {
  const AttemptRecord* attempt = state.attempts().OfJob(job_, attempt_);
  const Process* process =
      attempt == nullptr ? nullptr : ProcessOf(*attempt, rank_);
  return process != nullptr && process->incarnation > incarnation_;
}

void LogStream::Next() {
  log_.reset();
  finished_ = true;
  const absl::StatusOr<const ClusterState*> state = host_.Readable();
  if (!state.ok()) return Close(state.status());
  const JobRecord* job = (*state)->jobs().Find(job_);
  if (!follow_ || job == nullptr) return Close(absl::OkStatus());
  const bool has_later = HasLaterProcess(**state);
  if (has_later || attempt_ < job->row.attempts()) {
    if (!has_later) {
      attempt_ += 1;
      offset_ = 0;
    }
    finished_ = false;
    return Step();
  }
  if (HasEnded(job->row.state())) return Close(absl::OkStatus());
  waiting_ = true;
}

void LogStream::Close(const absl::Status& status) {
  if (std::exchange(closed_, true)) return;
  log_.reset();
  writer_->Close(status);
}

}  // namespace cohort::head
