#include "worker/run_service.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "common/printable_text.h"
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
constexpr int kAddressesMax = 4;
constexpr size_t kAddressBytesMax = 256;

// The process that the request names, if the caller may speak for it.
template <typename Request>
absl::StatusOr<ProcessId> Allowed(const rpc::CallContext& context,
                                  const Request& request) {
  COHORT_ASSIGN_OR_RETURN(const AttemptId attempt,
                          AttemptId::FromBytes(request.attempt_id()));
  const ProcessId process = {.attempt = attempt,
                             .slot = request.slot(),
                             .incarnation = request.incarnation()};
  const rpc::Principal& principal = context.principal();
  if (principal.role == rpc::Role::kRank && principal.process != process) {
    return absl::PermissionDeniedError(
        absl::StrCat("this credential is for process ",
                     principal.process.ToText(), ", not ", process.ToText()));
  }
  return process;
}

// Answers with an empty response once that is done.
template <typename Response>
ProcessHost::Done Acknowledge(rpc::Reply<Response> reply) {
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

// One process's watch.
class RunService::Watcher final : public rpc::StreamReader<v1::WatchRequest> {
 public:
  Watcher(RunService& service, std::shared_ptr<rpc::CallContext> context,
          std::unique_ptr<rpc::StreamWriter<v1::WatchResponse>> writer)
      : service_(service),
        context_(std::move(context)),
        writer_(std::move(writer)) {
    writer_->SetOnDrained([this] {
      if (std::exchange(lags_, false)) Tell();
    });
  }

  void OnMessage(const v1::WatchRequest& request) override {
    const absl::StatusOr<ProcessId> process = Allowed(*context_, request);
    if (!process.ok()) return writer_->Close(process.status());
    if (process_.has_value()) {
      const absl::Status noted = NoteAddresses(*process, request);
      if (!noted.ok()) writer_->Close(noted);
      return;
    }
    // One that is over is not here to be watched, unless it was watched.
    const auto standing = service_.node_.Standing(*process);
    if (!standing.ok()) return writer_->Close(standing.status());
    process_ = *process;
    service_.watchers_.emplace(*process, this);
    Tell();
  }
  void OnClosed(absl::Status) override {
    if (!process_.has_value()) return;
    auto [it, end] = service_.watchers_.equal_range(*process_);
    while (it != end && it->second != this) ++it;
    if (it != end) service_.watchers_.erase(it);
  }

  absl::Status NoteAddresses(const ProcessId& process,
                             const v1::WatchRequest& request) {
    if (process != *process_) {
      return absl::InvalidArgumentError("a watch is of one process");
    }
    const auto& addresses = request.addresses();
    const bool is_wrong =
        std::any_of(addresses.begin(), addresses.end(), [](const auto& each) {
          return each.size() > kAddressBytesMax || !IsPrintableUtf8(each);
        });
    if (addresses.size() > kAddressesMax || is_wrong) {
      return absl::InvalidArgumentError(absl::StrCat(
          "a process serves calls at ", kAddressesMax,
          " printable addresses of ", kAddressBytesMax, " bytes at most"));
    }
    return service_.node_.NoteAddresses(process,
                                        {addresses.begin(), addresses.end()});
  }

  void Tell() {
    if (writer_->QueuedBytes() > 0) {
      lags_ = true;  // WA-1
      return;
    }
    absl::StatusOr<v1::WatchResponse> standing =
        service_.node_.Standing(*process_);
    if (!standing.ok()) return writer_->Close(absl::OkStatus());
    const auto running =
        service_.node_.FindRunning(*process_, standing->epoch());
    if (!running.ok()) return writer_->Close(absl::OkStatus());
    standing->set_runtime_directory(
        service_.paths_.runtime_directory(process_->attempt));
    standing->set_checkpoint_root(
        service_.paths_.checkpoint_root(*running->begun));
    standing->set_host(service_.paths_.host);
    if (std::exchange(told_, true)) standing->clear_actor();
    // A stream that is over says so through OnClosed.
    writer_->Write(*standing).IgnoreError();
  }

 private:
  RunService& service_;
  const std::shared_ptr<rpc::CallContext> context_;  // shared with the Router
  const std::unique_ptr<rpc::StreamWriter<v1::WatchResponse>> writer_;
  std::optional<ProcessId> process_;
  bool lags_ = false;
  bool told_ = false;
};

RunService::RunService(rpc::Router& router, Executor& strand, NodeState& node,
                       RunPaths paths)
    : node_(node), paths_(std::move(paths)) {
  node.SetWatcher([this](const ProcessId& process) { OnChange(process); });
  router.HandleStream(
      rpc::kWatchRun, strand,
      [this](const std::shared_ptr<rpc::CallContext>& context,
             std::unique_ptr<rpc::StreamWriter<v1::WatchResponse>> writer)
          -> absl::StatusOr<
              std::unique_ptr<rpc::StreamReader<v1::WatchRequest>>> {
        return std::make_unique<Watcher>(*this, context, std::move(writer));
      });
  router.Handle(rpc::kExchange, strand,
                [this](const auto& context, const auto& request, auto reply) {
                  Exchange(*context, request, std::move(reply));
                });
  router.Handle(rpc::kCommitCheckpoint, strand,
                [this](const auto& context, const auto& request, auto reply) {
                  CommitCheckpoint(*context, request, std::move(reply));
                });
  router.Handle(rpc::kReportPreflight, strand,
                [this](const auto& context, const auto& request, auto reply) {
                  ReportPreflight(*context, request, std::move(reply));
                });
  router.Handle(rpc::kReportGpuEnd, strand,
                [this](const auto& context, const auto& request, auto reply) {
                  ReportGpuEnd(*context, request, std::move(reply));
                });
}

void RunService::OnChange(const ProcessId& process) {
  const auto [begin, end] = watchers_.equal_range(process);
  std::vector<Watcher*> told;
  for (auto it = begin; it != end; ++it) told.push_back(it->second);
  for (Watcher* const watcher : told) watcher->Tell();
}

void RunService::Exchange(const rpc::CallContext& context,
                          const v1::ExchangeRequest& request,
                          rpc::Reply<v1::ExchangeResponse> reply) {
  const absl::StatusOr<ProcessId> id = Allowed(context, request);
  if (!id.ok()) return std::move(reply)(id.status());
  if (request.tag().empty() || request.tag().size() > kTagBytesMax ||
      request.blob().size() > kBlobBytesMax) {
    return std::move(reply)(absl::InvalidArgumentError(absl::StrCat(
        "an exchange has a tag of 1 to ", kTagBytesMax,
        " bytes and a blob of at most ", kBlobBytesMax, "; this one has ",
        request.tag().size(), " and ", request.blob().size())));
  }
  node_.GiveBlob(*id, request.epoch(), request.tag(), request.blob(),
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
  const absl::StatusOr<ProcessId> id = Allowed(context, request);
  if (!id.ok()) return std::move(reply)(id.status());
  const auto running = node_.FindRunning(*id, request.epoch());
  if (!running.ok()) return std::move(reply)(running.status());
  const absl::Status path = CheckPath(request.checkpoint().path(),
                                      paths_.checkpoint_root(*running->begun));
  if (!path.ok()) return std::move(reply)(path);
  if (!std::isfinite(request.checkpoint().score())) {
    return std::move(reply)(absl::InvalidArgumentError(
        absl::StrCat("the score of a checkpoint is ",
                     request.checkpoint().score(), " (a number is needed)")));
  }
  v1::Checkpoint checkpoint = request.checkpoint();
  checkpoint.set_epoch(request.epoch());
  node_.CommitCheckpoint(*id, request.epoch(), checkpoint,
                         Acknowledge(std::move(reply)));
}

void RunService::ReportPreflight(
    const rpc::CallContext& context, const v1::ReportPreflightRequest& request,
    rpc::Reply<v1::ReportPreflightResponse> reply) {
  const absl::StatusOr<ProcessId> id = Allowed(context, request);
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
  node_.ReportPreflight(*id, request.epoch(), report,
                        Acknowledge(std::move(reply)));
}

void RunService::ReportGpuEnd(const rpc::CallContext& context,
                              const v1::ReportGpuEndRequest& request,
                              rpc::Reply<v1::ReportGpuEndResponse> reply) {
  const absl::StatusOr<ProcessId> id = Allowed(context, request);
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
  node_.ReportGpuEnd(*id, request.epoch(), end, Acknowledge(std::move(reply)));
}

}  // namespace cohort::worker
