#include "worker/run_service.h"

#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "common/status_macros.h"
#include "rpc/methods.h"

namespace cohort::worker {
namespace {

constexpr size_t kTagBytesMax = 64;
constexpr size_t kBlobBytesMax = 64 << 10;
constexpr size_t kPathBytesMax = 4096;
constexpr size_t kSummaryBytesMax = 1 << 10;
constexpr size_t kReportBytesMax = 16 << 10;
constexpr size_t kGpuEndBytesMax = 1 << 10;

// The attempt that the request names, if the caller may speak for it.
absl::StatusOr<AttemptId> Allowed(const rpc::CallContext& context,
                                  const std::string& bytes) {
  COHORT_ASSIGN_OR_RETURN(const AttemptId attempt, AttemptId::FromBytes(bytes));
  const rpc::Principal& principal = context.principal();
  if (principal.kind == rpc::Principal::Kind::kRank &&
      principal.attempt != attempt) {
    return absl::PermissionDeniedError(
        absl::StrCat("this credential is for attempt ",
                     principal.attempt.ToHex(), ", not ", attempt.ToHex()));
  }
  return attempt;
}

// Answers with an empty response once that is done.
template <typename Response>
AttemptHost::Done Acknowledge(rpc::Reply<Response> reply) {
  return [reply = std::move(reply)](absl::Status status) mutable {
    if (!status.ok()) return std::move(reply)(std::move(status));
    std::move(reply)(Response());
  };
}

absl::Status CheckPath(absl::string_view path, absl::string_view root) {
  if (path.size() > kPathBytesMax ||
      !absl::StartsWith(path, absl::StrCat(root, "/step-")) ||
      absl::StrContains(path, "/../")) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a checkpoint of this attempt is ", root, "/step-<k>, not ", path));
  }
  return absl::OkStatus();
}

}  // namespace

RunService::RunService(rpc::Router& router, Executor& strand, NodeState& node,
                       RunPaths paths)
    : node_(node), paths_(std::move(paths)) {
  router.Handle(rpc::kJoinRun, rpc::Access::kRank, strand,
                [this](const auto& context, const auto& request, auto reply) {
                  std::move(reply)(Join(*context, request));
                });
  router.Handle(rpc::kExchange, rpc::Access::kRank, strand,
                [this](const auto& context, const auto& request, auto reply) {
                  Exchange(*context, request, std::move(reply));
                });
  router.Handle(rpc::kCommitCheckpoint, rpc::Access::kRank, strand,
                [this](const auto& context, const auto& request, auto reply) {
                  CommitCheckpoint(*context, request, std::move(reply));
                });
  router.Handle(rpc::kReportPreflight, rpc::Access::kRank, strand,
                [this](const auto& context, const auto& request, auto reply) {
                  ReportPreflight(*context, request, std::move(reply));
                });
  router.Handle(rpc::kReportGpuEnd, rpc::Access::kRank, strand,
                [this](const auto& context, const auto& request, auto reply) {
                  ReportGpuEnd(*context, request, std::move(reply));
                });
}

absl::StatusOr<v1::JoinRunResponse> RunService::Join(
    const rpc::CallContext& context, const v1::JoinRunRequest& request) {
  COHORT_ASSIGN_OR_RETURN(const AttemptId id,
                          Allowed(context, request.attempt_id()));
  COHORT_ASSIGN_OR_RETURN(
      const v1::DesiredAttempt* attempt,
      node_.FindRunning(id, request.rank(), request.epoch()));
  v1::JoinRunResponse response;
  response.set_job_id(attempt->job_id());
  response.set_number(attempt->number());
  response.set_epoch(attempt->epoch());
  response.set_rank(request.rank());
  for (const v1::DesiredRank& rank : attempt->ranks()) {
    if (rank.rank() == request.rank()) {
      response.set_local_rank(rank.local_rank());
    }
  }
  response.set_world_size(attempt->world_size());
  response.set_local_world_size(attempt->ranks_size());
  response.set_node_rank(attempt->node_rank());
  response.set_node_count(attempt->node_count());
  response.set_runtime_directory(paths_.runtime_directory(id));
  response.set_checkpoint_root(paths_.checkpoint_root(*attempt));
  *response.mutable_restore() = attempt->restore();
  response.set_host(paths_.host);
  return response;
}

void RunService::Exchange(const rpc::CallContext& context,
                          const v1::ExchangeRequest& request,
                          rpc::Reply<v1::ExchangeResponse> reply) {
  const absl::StatusOr<AttemptId> id = Allowed(context, request.attempt_id());
  if (!id.ok()) return std::move(reply)(id.status());
  if (request.tag().empty() || request.tag().size() > kTagBytesMax ||
      request.blob().size() > kBlobBytesMax) {
    return std::move(reply)(absl::InvalidArgumentError(absl::StrCat(
        "an exchange has a tag of 1 to ", kTagBytesMax,
        " bytes and a blob of at most ", kBlobBytesMax, "; this one has ",
        request.tag().size(), " and ", request.blob().size())));
  }
  node_.GiveBlob(*id, request.rank(), request.epoch(), request.tag(),
                 request.blob(),
                 [reply = std::move(reply)](
                     absl::StatusOr<std::vector<std::string>> blobs) mutable {
                   if (!blobs.ok()) return std::move(reply)(blobs.status());
                   v1::ExchangeResponse response;
                   for (std::string& blob : *blobs)
                     response.add_blobs(std::move(blob));
                   std::move(reply)(std::move(response));
                 });
}

void RunService::CommitCheckpoint(
    const rpc::CallContext& context, const v1::CommitCheckpointRequest& request,
    rpc::Reply<v1::CommitCheckpointResponse> reply) {
  const absl::StatusOr<AttemptId> id = Allowed(context, request.attempt_id());
  if (!id.ok()) return std::move(reply)(id.status());
  const auto attempt = node_.FindRunning(*id, request.rank(), request.epoch());
  if (!attempt.ok()) return std::move(reply)(attempt.status());
  const absl::Status path =
      CheckPath(request.checkpoint().path(), paths_.checkpoint_root(**attempt));
  if (!path.ok()) return std::move(reply)(path);
  v1::Checkpoint checkpoint = request.checkpoint();
  checkpoint.set_epoch(request.epoch());
  node_.CommitCheckpoint(*id, request.rank(), request.epoch(), checkpoint,
                         Acknowledge(std::move(reply)));
}

void RunService::ReportPreflight(
    const rpc::CallContext& context, const v1::ReportPreflightRequest& request,
    rpc::Reply<v1::ReportPreflightResponse> reply) {
  const absl::StatusOr<AttemptId> id = Allowed(context, request.attempt_id());
  if (!id.ok()) return std::move(reply)(id.status());
  const v1::PreflightReport& report = request.report();
  if (report.verdict() == v1::PREFLIGHT_VERDICT_UNSPECIFIED ||
      report.summary().size() > kSummaryBytesMax ||
      report.json().size() > kReportBytesMax) {
    return std::move(reply)(absl::InvalidArgumentError(absl::StrCat(
        "a preflight's report has a verdict, a summary of at most ",
        kSummaryBytesMax, " bytes and JSON of at most ", kReportBytesMax,
        "; this one has ", report.summary().size(), " and ",
        report.json().size())));
  }
  node_.ReportPreflight(*id, request.rank(), request.epoch(), report,
                        Acknowledge(std::move(reply)));
}

void RunService::ReportGpuEnd(const rpc::CallContext& context,
                              const v1::ReportGpuEndRequest& request,
                              rpc::Reply<v1::ReportGpuEndResponse> reply) {
  const absl::StatusOr<AttemptId> id = Allowed(context, request.attempt_id());
  if (!id.ok()) return std::move(reply)(id.status());
  const v1::GpuEnd& end = request.end();
  if (!v1::GpuAbortLevel_IsValid(end.level()) ||
      end.level() == v1::GPU_ABORT_LEVEL_UNSPECIFIED ||
      end.why().size() > kGpuEndBytesMax) {
    return std::move(reply)(absl::InvalidArgumentError(absl::StrCat(
        "the end of a communicator has an abort level, and a reason of at "
        "most ",
        kGpuEndBytesMax, " bytes; this one has ", end.level(), " and ",
        end.why().size())));
  }
  node_.ReportGpuEnd(*id, request.rank(), request.epoch(), end,
                     Acknowledge(std::move(reply)));
}

}  // namespace cohort::worker
