#include "head/services/run_file_service.h"

#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "common/status_macros.h"
#include "common/status_util.h"
#include "head/services/job_access.h"
#include "head/services/node_log.h"
#include "rpc/methods.h"

namespace cohort::head {
namespace {

using Writer = rpc::StreamWriter<v1::ReadRunFileResponse>;

absl::Status CheckPath(const std::string& path) {
  for (const absl::string_view part : absl::StrSplit(path, '/')) {
    if (!part.empty() && part != "..") continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "path ", path,
        " does not lie in a job's run directory (write it as `cohort jobs "
        "files` does)"));
  }
  return absl::OkStatus();
}

// One file, or list, on its way from the node to the client.
class RunFile final : public std::enable_shared_from_this<RunFile> {
 public:
  explicit RunFile(std::unique_ptr<Writer> writer)
      : writer_(std::move(writer)) {}

  void Begin(NodeService& nodes, const NodeId& node, v1::SendLog order) {
    begun_ = true;
    offset_ = order.offset();
    // The next piece once the client has taken this one.
    writer_->SetOnDrained([weak = weak_from_this()] {
      const std::shared_ptr<RunFile> self = weak.lock();
      if (self == nullptr || !std::exchange(self->draining_, false)) return;
      self->log_->Next(self->offset_);
    });
    log_ = nodes.OpenLog(node, std::move(order),
                         [weak = weak_from_this()](const auto& answer) {
                           const std::shared_ptr<RunFile> self = weak.lock();
                           if (self != nullptr) self->OnAnswer(answer);
                         });
  }

  void Close(const absl::Status& status) {
    if (std::exchange(closed_, true)) return;
    log_.reset();
    writer_->Close(status);
  }

  bool begun() const { return begun_; }

 private:
  void OnAnswer(const absl::StatusOr<const v1::LogPiece*>& answer) {
    if (closed_) return;
    if (!answer.ok()) return Close(answer.status());
    const v1::LogPiece& piece = **answer;
    if (!piece.known()) return Close(absl::NotFoundError(piece.data()));
    if (!piece.data().empty() || piece.files_size() > 0) {
      v1::ReadRunFileResponse response;
      response.set_offset(offset_);
      response.set_data(piece.data());
      *response.mutable_files() = piece.files();
      offset_ += static_cast<int64_t>(piece.data().size()) + piece.files_size();
      draining_ = !piece.end();
      const absl::Status written = writer_->Write(response);
      if (!written.ok()) return Close(written);
    } else if (!piece.end()) {
      return Close(absl::InternalError("the node sent an empty piece"));
    }
    if (piece.end()) Close(absl::OkStatus());
  }

  const std::unique_ptr<Writer> writer_;
  std::shared_ptr<NodeLog> log_;
  int64_t offset_ = 0;
  bool begun_ = false;
  bool closed_ = false;
  bool draining_ = false;  // the client has to take what was sent
};

}  // namespace

// What the Router drives; it may live a task longer than the service.
class RunFileService::Reader final
    : public rpc::StreamReader<v1::ReadRunFileRequest> {
 public:
  Reader(std::shared_ptr<RunFileService*> service,
         std::shared_ptr<rpc::CallContext> context,
         std::unique_ptr<Writer> writer)
      : service_(std::move(service)),
        context_(std::move(context)),
        file_(std::make_shared<RunFile>(std::move(writer))) {}

  void OnMessage(const v1::ReadRunFileRequest& request) override {
    const absl::Status begun = Begin(request);
    if (!begun.ok()) file_->Close(begun);
  }

  void OnClosed(absl::Status status) override { file_->Close(status); }

 private:
  absl::Status Begin(const v1::ReadRunFileRequest& request) {
    if (*service_ == nullptr) return Gone();
    if (file_->begun()) {
      return absl::InvalidArgumentError(
          "a stream of a file takes one request: open another stream");
    }
    RunFileService& service = **service_;
    COHORT_ASSIGN_OR_RETURN(const ClusterState* state,
                            service.host_.Readable());
    COHORT_ASSIGN_OR_RETURN(const JobId id, JobId::FromBytes(request.job_id()));
    COHORT_RETURN_IF_ERROR(CheckMayUse(*state, context_->principal(), id));
    const JobRecord* job = state->jobs().Find(id);
    if (job == nullptr) return state->NoJob(id);
    COHORT_ASSIGN_OR_RETURN(const NodeId node,
                            NodeId::FromBytes(request.node_id()));
    if (request.offset() < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("offset ", request.offset(), " is negative"));
    }
    if (state->IsGoneForGood(node)) {
      const std::string& storage = job->spec->run().storage_path();
      return SetReason(
          absl::NotFoundError(absl::StrCat(
              "node ", state->nodes().Find(node)->node.name(),
              " has ended, and what job ", id.ToText(), " wrote there with it",
              storage.empty()
                  ? ""
                  : absl::StrCat(", unless ", storage, " outlives nodes"))),
          kNodeGone);
    }
    v1::SendLog order;
    order.set_job_id(request.job_id());
    order.set_storage_path(job->spec->run().storage_path());
    order.set_offset(request.offset());
    if (request.path().empty()) {
      order.set_list(true);
    } else {
      COHORT_RETURN_IF_ERROR(CheckPath(request.path()));
      order.set_file(request.path());
    }
    file_->Begin(service.nodes_, node, std::move(order));
    return absl::OkStatus();
  }

  const std::shared_ptr<RunFileService*> service_;
  const std::shared_ptr<rpc::CallContext> context_;
  const std::shared_ptr<RunFile> file_;  // Shared with its callbacks.
};

RunFileService::RunFileService(StateHost& host, NodeService& nodes,
                               Executor& strand)
    : host_(host),
      nodes_(nodes),
      strand_(strand),
      self_(std::make_shared<RunFileService*>(this)) {}

RunFileService::~RunFileService() { *self_ = nullptr; }

void RunFileService::RegisterOn(rpc::Router& router) {
  router.HandleStream(
      rpc::kReadRunFile, strand_,
      [self = self_](const std::shared_ptr<rpc::CallContext>& context,
                     std::unique_ptr<Writer> writer)
          -> absl::StatusOr<
              std::unique_ptr<rpc::StreamReader<v1::ReadRunFileRequest>>> {
        if (*self == nullptr) return Gone();
        return std::make_unique<Reader>(self, context, std::move(writer));
      });
}

}  // namespace cohort::head
