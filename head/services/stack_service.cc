#include "head/services/stack_service.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "common/status_macros.h"
#include "common/status_util.h"
#include "head/services/cluster_wire.h"
#include "rpc/methods.h"

namespace cohort::head {
namespace {

constexpr size_t kStackBytesMax = 1 << 20;

absl::Status NoProcess(const JobId& job, int rank) {
  return SetReason(absl::FailedPreconditionError(
                       absl::StrCat("rank ", rank, " of job ", job.ToText(),
                                    " has no process now (`cohort jobs get ",
                                    job.ToText(), "` shows its ranks)")),
                   "no_process");
}

}  // namespace

StackService::StackService(StateHost& host, NodeService& nodes,
                           Executor& strand)
    : host_(host),
      nodes_(nodes),
      strand_(strand),
      self_(std::make_shared<StackService*>(this)) {}

StackService::~StackService() {
  *self_ = nullptr;
  DropWaiting(Gone());
}

void StackService::RegisterOn(rpc::Router& router) {
  router.Handle(
      rpc::kGetStack, rpc::Access::kCluster, strand_,
      [self = self_](const std::shared_ptr<rpc::CallContext>&,
                     const v1::GetStackRequest& request, Reply reply) {
        if (*self == nullptr) return std::move(reply)(Gone());
        (*self)->Answer(request, std::move(reply));
      });
}

void StackService::DropWaiting(const absl::Status& why) {
  while (!reads_.empty()) Finish(reads_.begin()->first, why);
}

absl::StatusOr<StackService::Question> StackService::Ask(
    const v1::GetStackRequest& request) const {
  COHORT_ASSIGN_OR_RETURN(const ClusterState* state, host_.Readable());
  COHORT_ASSIGN_OR_RETURN(const JobId id, JobId::FromBytes(request.job_id()));
  const JobRecord* job = state->jobs().Find(id);
  if (job == nullptr) return state->NoJob(id);
  if (request.rank() < 0 || request.rank() >= job->row.num_workers()) {
    return absl::NotFoundError(
        absl::StrCat("job ", id.ToText(), " has no rank ", request.rank(),
                     ": it has ", job->row.num_workers()));
  }
  const AttemptRecord* attempt = state->attempts().LastOf(id);
  const auto slot = static_cast<size_t>(request.rank());
  if (attempt == nullptr || slot >= attempt->processes.size()) {
    return NoProcess(id, request.rank());
  }
  const Process& process = attempt->processes[slot];
  if (process.waits() || process.pid == 0 ||
      process.state >= v1::PROCESS_STATE_EXITED) {
    return NoProcess(id, request.rank());
  }
  Question question;
  question.node = process.node;
  question.rank = RankToWire(*state, process);
  question.order.set_attempt_id(IdBytes(attempt->id));
  question.order.set_job_id(request.job_id());
  question.order.set_slot(request.rank());
  question.order.set_incarnation(process.incarnation);
  question.order.set_stack_of_pid(process.pid);
  question.order.set_wait(true);
  return question;
}

void StackService::Answer(const v1::GetStackRequest& request, Reply reply) {
  absl::StatusOr<Question> question = Ask(request);
  if (!question.ok()) return std::move(reply)(question.status());
  if (reads_.size() >= kReadsMax) {
    return std::move(reply)(SetReason(
        absl::ResourceExhaustedError(absl::StrCat(
            reads_.size(), " stacks are read at once already, which is all ",
            "that the head serves: try again when others have ended")),
        "overloaded"));
  }
  const uint64_t number = next_++;
  Read& read =
      reads_.emplace(number, Read{.reply = std::move(reply)}).first->second;
  *read.response.mutable_rank() = std::move(question->rank);
  read.log =
      nodes_.OpenLog(question->node, std::move(question->order),
                     [self = self_, number](
                         const absl::StatusOr<const v1::LogPiece*>& answer) {
                       if (*self != nullptr) (*self)->OnPiece(number, answer);
                     });
}

void StackService::OnPiece(uint64_t number,
                           const absl::StatusOr<const v1::LogPiece*>& answer) {
  const auto found = reads_.find(number);
  if (found == reads_.end()) return;
  if (!answer.ok()) return Finish(number, answer.status());
  const v1::LogPiece& piece = **answer;
  Read& read = found->second;
  if (!piece.known() && !piece.data().empty()) {
    return Finish(
        number,
        SetReason(absl::FailedPreconditionError(absl::StrCat(
                      "rank ", read.response.rank().rank(), " on ",
                      read.response.rank().node_name(), ": ", piece.data())),
                  "no_stack"));
  }
  read.response.mutable_text()->append(piece.data());
  if (piece.end() || read.response.text().size() >= kStackBytesMax) {
    return Finish(number, absl::OkStatus());
  }
  read.log->Next(static_cast<int64_t>(read.response.text().size()));
}

void StackService::Finish(uint64_t number, const absl::Status& status) {
  auto read = reads_.extract(number);
  if (read.empty()) return;
  if (!status.ok()) return std::move(read.mapped().reply)(status);
  std::move(read.mapped().reply)(std::move(read.mapped().response));
}

}  // namespace cohort::head
