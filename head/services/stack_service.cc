#include "head/services/stack_service.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "common/status_macros.h"
#include "common/status_util.h"
#include "head/services/cluster_wire.h"
#include "head/services/job_access.h"
#include "rpc/methods.h"

namespace cohort::head {
namespace {

constexpr size_t kBytesMax = 1 << 20;

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
  router.Handle(rpc::kGetStack, strand_,
                [self = self_](const std::shared_ptr<rpc::CallContext>& context,
                               const v1::GetStackRequest& request, auto reply) {
                  if (*self == nullptr) return std::move(reply)(Gone());
                  (*self)->AnswerStack(context->principal(), request,
                                       std::move(reply));
                });
  router.Handle(
      rpc::kGetServedCalls, strand_,
      [self = self_](const std::shared_ptr<rpc::CallContext>& context,
                     const v1::GetServedCallsRequest& request, auto reply) {
        if (*self == nullptr) return std::move(reply)(Gone());
        (*self)->AnswerCalls(context->principal(), request, std::move(reply));
      });
}

void StackService::DropWaiting(const absl::Status& why) {
  while (!reads_.empty()) Finish(reads_.begin()->first, why);
}

absl::StatusOr<StackService::Question> StackService::Ask(
    const rpc::Principal& principal, const std::string& bytes, int rank) const {
  COHORT_ASSIGN_OR_RETURN(const ClusterState* state, host_.Readable());
  COHORT_ASSIGN_OR_RETURN(const JobId id, JobId::FromBytes(bytes));
  COHORT_RETURN_IF_ERROR(CheckMayUse(*state, principal, id));
  const JobRecord* job = state->jobs().Find(id);
  if (job == nullptr) return state->NoJob(id);
  if (rank < 0 || rank >= job->row.num_workers()) {
    return absl::NotFoundError(absl::StrCat("job ", id.ToText(),
                                            " has no rank ", rank, ": it has ",
                                            job->row.num_workers()));
  }
  const AttemptRecord* attempt = state->attempts().LastOf(id);
  const auto slot = static_cast<size_t>(rank);
  if (attempt == nullptr || slot >= attempt->processes.size()) {
    return NoProcess(id, rank);
  }
  const Process& process = attempt->processes[slot];
  if (process.waits() || process.pid == 0 ||
      process.state >= v1::PROCESS_STATE_EXITED) {
    return NoProcess(id, rank);
  }
  Question question;
  question.node = process.node;
  question.rank = RankToWire(*state, process);
  question.order.set_attempt_id(IdBytes(attempt->id));
  question.order.set_job_id(bytes);
  question.order.set_slot(rank);
  question.order.set_incarnation(process.incarnation);
  question.order.set_wait(true);
  return question;
}

void StackService::AnswerStack(const rpc::Principal& principal,
                               const v1::GetStackRequest& request,
                               rpc::Reply<v1::GetStackResponse> reply) {
  absl::StatusOr<Question> question =
      Ask(principal, request.job_id(), request.rank());
  if (!question.ok()) return std::move(reply)(question.status());
  question->order.set_stack_of_pid(question->rank.pid());
  Begin(*std::move(question),
        [reply = std::move(reply)](const absl::Status& status, v1::Rank rank,
                                   std::string bytes) mutable {
          if (!status.ok()) return std::move(reply)(status);
          v1::GetStackResponse response;
          *response.mutable_rank() = std::move(rank);
          response.set_text(std::move(bytes));
          std::move(reply)(std::move(response));
        });
}

void StackService::AnswerCalls(const rpc::Principal& principal,
                               const v1::GetServedCallsRequest& request,
                               rpc::Reply<v1::GetServedCallsResponse> reply) {
  absl::StatusOr<Question> question =
      Ask(principal, request.job_id(), request.rank());
  if (!question.ok()) return std::move(reply)(question.status());
  question->order.set_calls(true);
  Begin(*std::move(question),
        [reply = std::move(reply)](const absl::Status& status, v1::Rank rank,
                                   std::string bytes) mutable {
          if (!status.ok()) return std::move(reply)(status);
          v1::GetServedCallsResponse response;
          if (!response.mutable_calls()->ParseFromString(bytes)) {
            return std::move(reply)(absl::InternalError(absl::StrCat(
                "node ", rank.node_name(),
                " sent something other than calls (is it of another "
                "release?)")));
          }
          *response.mutable_rank() = std::move(rank);
          std::move(reply)(std::move(response));
        });
}

void StackService::Begin(Question question, Done done) {
  if (reads_.size() >= kReadsMax) {
    return std::move(done)(
        SetReason(
            absl::ResourceExhaustedError(absl::StrCat(
                reads_.size(), " processes are read at once already, which is ",
                "all that the head serves: try again when others have ended")),
            "overloaded"),
        {}, {});
  }
  const uint64_t number = next_++;
  Read& read = reads_[number];
  read.done = std::move(done);
  read.rank = std::move(question.rank);
  read.log =
      nodes_.OpenLog(question.node, std::move(question.order),
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
    return Finish(number,
                  SetReason(absl::FailedPreconditionError(absl::StrCat(
                                "rank ", read.rank.rank(), " on ",
                                read.rank.node_name(), ": ", piece.data())),
                            "no_stack"));
  }
  read.bytes.append(piece.data());
  if (piece.end() || read.bytes.size() >= kBytesMax) {
    return Finish(number, absl::OkStatus());
  }
  read.log->Next(static_cast<int64_t>(read.bytes.size()));
}

void StackService::Finish(uint64_t number, const absl::Status& status) {
  auto read = reads_.extract(number);
  if (read.empty()) return;
  Read& ended = read.mapped();
  std::move(ended.done)(status, std::move(ended.rank), std::move(ended.bytes));
}

}  // namespace cohort::head
