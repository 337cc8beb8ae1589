#include "client/testing/fake_head.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/hash.h"
#include "common/job_id.h"
#include "common/status_macros.h"
#include "common/strong_id.h"
#include "common/thread_pool.h"
#include "rpc/authenticator.h"
#include "rpc/methods.h"

namespace cohort::client {
namespace {

rpc::Credential TestCredential() {
  return rpc::Credential::FromBytes(
             std::string(rpc::Credential::kClusterBytes, 'c'))
      .value();
}

std::string LogName(int rank, int stream) {
  return absl::StrCat(rank, ".", stream);
}

absl::Status NoSuchJob() { return absl::NotFoundError("there is no such job"); }

}  // namespace

// Answers one ReadLog.
class FakeHead::LogReader final : public rpc::StreamReader<v1::ReadLogRequest> {
 public:
  LogReader(FakeHead& head,
            std::unique_ptr<rpc::StreamWriter<v1::ReadLogResponse>> writer)
      : head_(head), writer_(std::move(writer)) {}

  void OnMessage(const v1::ReadLogRequest& request) override {
    writer_->Close(head_.ReadLog(request, *writer_));
  }
  void OnClosed(absl::Status /*status*/) override {}

 private:
  FakeHead& head_;
  const std::unique_ptr<rpc::StreamWriter<v1::ReadLogResponse>> writer_;
};

// Answers one ReadRunFile.
class FakeHead::FileReader final
    : public rpc::StreamReader<v1::ReadRunFileRequest> {
 public:
  FileReader(FakeHead& head,
             std::unique_ptr<rpc::StreamWriter<v1::ReadRunFileResponse>> writer)
      : head_(head), writer_(std::move(writer)) {}

  void OnMessage(const v1::ReadRunFileRequest& request) override {
    writer_->Close(head_.ReadFile(request, *writer_));
  }
  void OnClosed(absl::Status /*status*/) override {}

 private:
  FakeHead& head_;
  const std::unique_ptr<rpc::StreamWriter<v1::ReadRunFileResponse>> writer_;
};

FakeHead::FakeHead(uint64_t seed)
    : pool_(std::make_unique<ThreadPool>(2)),
      strand_(*pool_),
      wires_(*pool_),
      network_random_(seed),
      credential_(TestCredential()),
      network_({.delay_min = absl::ZeroDuration(),
                .delay_max = absl::Microseconds(200)},
               wires_, clock_, network_random_),
      random_(seed + 1),
      cluster_id_(std::string(ClusterId::kBytes, 'a')) {}

FakeHead::~FakeHead() {
  Kill();
  {
    MutexLock lock(mutex_);
    waiters_.clear();
  }
  strand_.Stop();
  wires_.Stop();
}

void FakeHead::Start() {
  std::string cluster_id;
  uint64_t term = 0;
  {
    MutexLock lock(mutex_);
    cluster_id = cluster_id_;
    term = term_ + 1;
  }
  StartAs(cluster_id, term);
}

void FakeHead::StartAs(const std::string& cluster_id, uint64_t term) {
  rpc::Router* router = nullptr;
  {
    MutexLock lock(mutex_);
    if (router_ != nullptr) return;
    cluster_id_ = cluster_id;
    term_ = term;
    router_ = std::make_unique<rpc::Router>(
        rpc::RouterOptions(), rpc::Authenticator(credential_), clock_);
    router_->SetStamp({.cluster_id = cluster_id, .term = term});
    router = router_.get();
  }
  Serve(*router);
  network_.Listen("head", router);
}

void FakeHead::Kill() {
  {
    MutexLock lock(mutex_);
    if (router_ == nullptr) return;
  }
  network_.Kill("head");
  MutexLock lock(mutex_);
  dead_.push_back(std::move(router_));
}

void FakeHead::BreakAfterSubmits(int n) {
  MutexLock lock(mutex_);
  submits_until_break_ = n;
}

void FakeHead::SetFile(const std::string& path, const std::string& bytes) {
  MutexLock lock(mutex_);
  files_[path] = bytes;
}

void FakeHead::BreakLogsAfter(int64_t bytes) {
  MutexLock lock(mutex_);
  log_bytes_max_ = bytes;
}

void FakeHead::LosePartAnswers(int n) {
  MutexLock lock(mutex_);
  parts_lost_ = n;
}

std::unique_ptr<rpc::Channel> FakeHead::Connect() {
  return ConnectWith(credential_);
}

std::unique_ptr<rpc::Channel> FakeHead::ConnectWith(
    const rpc::Credential& credential) {
  return network_.Connect("client", "head", credential);
}

std::map<std::string, FakeHead::JobEntry> FakeHead::jobs() const {
  MutexLock lock(mutex_);
  return jobs_;
}

std::map<std::string, std::string> FakeHead::packages() const {
  MutexLock lock(mutex_);
  return packages_;
}

int FakeHead::parts_received() const {
  MutexLock lock(mutex_);
  return parts_received_;
}

void FakeHead::EndJob(const std::string& id, v1::JobState state,
                      const v1::ExitStatus* exit) {
  std::vector<Waiter> ready;
  v1::WaitJobResponse response;
  {
    MutexLock lock(mutex_);
    v1::Job& job = jobs_[id].job;
    job.set_state(state);
    if (exit != nullptr) *job.mutable_exit() = *exit;
    *response.mutable_job() = job;
    const auto [begin, end] = waiters_.equal_range(id);
    for (auto it = begin; it != end; ++it) {
      ready.push_back(std::move(it->second));
    }
    waiters_.erase(begin, end);
  }
  for (Waiter& waiter : ready) std::move(waiter)(response);
}

void FakeHead::SetLog(const std::string& id, int rank, v1::LogStream stream,
                      const std::string& text,
                      const std::vector<v1::LogTime>& times) {
  MutexLock lock(mutex_);
  jobs_[id].logs[LogName(rank, stream)] = text;
  jobs_[id].log_times[LogName(rank, stream)] = times;
}

void FakeHead::RepeatLogs() {
  MutexLock lock(mutex_);
  repeats_logs_ = true;
}

void FakeHead::AwaitWaiter() {
  MutexLock lock(mutex_);
  while (waiters_.empty()) changed_.Wait(mutex_);
}

void FakeHead::Serve(rpc::Router& router) {
  ServeJobs(router);
  ServeReads(router);
  ServePackages(router);
  router.HandleStream(
      rpc::kReadLog, strand_,
      [this](const std::shared_ptr<rpc::CallContext>&,
             std::unique_ptr<rpc::StreamWriter<v1::ReadLogResponse>> writer)
          -> absl::StatusOr<
              std::unique_ptr<rpc::StreamReader<v1::ReadLogRequest>>> {
        return std::make_unique<LogReader>(*this, std::move(writer));
      });
  router.HandleStream(
      rpc::kReadRunFile, strand_,
      [this](const std::shared_ptr<rpc::CallContext>&,
             std::unique_ptr<rpc::StreamWriter<v1::ReadRunFileResponse>> writer)
          -> absl::StatusOr<
              std::unique_ptr<rpc::StreamReader<v1::ReadRunFileRequest>>> {
        return std::make_unique<FileReader>(*this, std::move(writer));
      });
}

void FakeHead::ServeJobs(rpc::Router& router) {
  router.Handle(
      rpc::kSubmitJob, strand_,
      [this](const std::shared_ptr<rpc::CallContext>&,
             const v1::SubmitJobRequest& request,
             rpc::Reply<v1::SubmitJobResponse> reply) {
        absl::StatusOr<v1::SubmitJobResponse> answer = Submit(request);
        bool breaks = false;
        {
          MutexLock lock(mutex_);
          breaks = submits_until_break_ > 0 && --submits_until_break_ == 0;
        }
        // What was done stays done; nobody hears of it.
        if (breaks) network_.BreakAll("head");
        std::move(reply)(std::move(answer));
      });
  router.Handle(rpc::kStopJob, strand_,
                [this](const std::shared_ptr<rpc::CallContext>&,
                       const v1::StopJobRequest& request,
                       rpc::Reply<v1::StopJobResponse> reply) {
                  MutexLock lock(mutex_);
                  const auto job = jobs_.find(request.job_id());
                  if (job == jobs_.end()) return std::move(reply)(NoSuchJob());
                  job->second.job.set_state(v1::JOB_STATE_STOPPING);
                  std::move(reply)(v1::StopJobResponse());
                });
  router.Handle(rpc::kResizeJob, strand_,
                [this](const std::shared_ptr<rpc::CallContext>&,
                       const v1::ResizeJobRequest& request,
                       rpc::Reply<v1::ResizeJobResponse> reply) {
                  MutexLock lock(mutex_);
                  const auto job = jobs_.find(request.job_id());
                  if (job == jobs_.end()) return std::move(reply)(NoSuchJob());
                  job->second.job.set_num_workers(request.num_workers());
                  std::move(reply)(v1::ResizeJobResponse());
                });
  router.Handle(rpc::kWaitJob, strand_,
                [this](const std::shared_ptr<rpc::CallContext>&,
                       const v1::WaitJobRequest& request,
                       rpc::Reply<v1::WaitJobResponse> reply) {
                  MutexLock lock(mutex_);
                  const auto job = jobs_.find(request.job_id());
                  if (job == jobs_.end()) return std::move(reply)(NoSuchJob());
                  if (job->second.job.state() >= v1::JOB_STATE_SUCCEEDED) {
                    v1::WaitJobResponse response;
                    *response.mutable_job() = job->second.job;
                    return std::move(reply)(response);
                  }
                  waiters_.emplace(request.job_id(), std::move(reply));
                  changed_.SignalAll();
                });
}

void FakeHead::ServeReads(rpc::Router& router) {
  router.Handle(rpc::kGetJob, strand_,
                [this](const std::shared_ptr<rpc::CallContext>&,
                       const v1::GetJobRequest& request,
                       rpc::Reply<v1::GetJobResponse> reply) {
                  MutexLock lock(mutex_);
                  const auto job = jobs_.find(request.job_id());
                  if (job == jobs_.end()) return std::move(reply)(NoSuchJob());
                  v1::GetJobResponse response;
                  *response.mutable_job() = job->second.job;
                  std::move(reply)(response);
                });
  router.Handle(rpc::kListJobs, strand_,
                [this](const std::shared_ptr<rpc::CallContext>&,
                       const v1::ListJobsRequest&,
                       rpc::Reply<v1::ListJobsResponse> reply) {
                  MutexLock lock(mutex_);
                  v1::ListJobsResponse response;
                  for (const auto& [id, entry] : jobs_) {
                    *response.add_jobs() = entry.job;
                  }
                  std::move(reply)(response);
                });
  router.Handle(rpc::kGetStatus, strand_,
                [this](const std::shared_ptr<rpc::CallContext>&,
                       const v1::GetStatusRequest&,
                       rpc::Reply<v1::GetStatusResponse> reply) {
                  MutexLock lock(mutex_);
                  v1::GetStatusResponse response;
                  response.set_address("head");
                  response.mutable_stamp()->set_cluster_id(cluster_id_);
                  response.mutable_stamp()->set_term(term_);
                  std::move(reply)(response);
                });
}

void FakeHead::ServePackages(rpc::Router& router) {
  router.Handle(rpc::kBeginPackage, strand_,
                [this](const std::shared_ptr<rpc::CallContext>&,
                       const v1::BeginPackageRequest& request,
                       rpc::Reply<v1::BeginPackageResponse> reply) {
                  MutexLock lock(mutex_);
                  v1::BeginPackageResponse response;
                  response.set_complete(packages_.contains(request.hash()));
                  response.set_offset(
                      static_cast<int64_t>(parts_[request.hash()].size()));
                  std::move(reply)(response);
                });
  router.Handle(
      rpc::kUploadPackage, strand_,
      [this](const std::shared_ptr<rpc::CallContext>&,
             const v1::UploadPackageRequest& request,
             rpc::Reply<v1::UploadPackageResponse> reply) {
        MutexLock lock(mutex_);
        ++parts_received_;
        std::string& part = parts_[request.hash()];
        if (request.offset() != static_cast<int64_t>(part.size())) {
          return std::move(reply)(
              absl::FailedPreconditionError("another offset"));
        }
        part += request.data();
        if (parts_lost_ > 0) {
          --parts_lost_;
          return std::move(reply)(absl::UnavailableError("lost on the way"));
        }
        v1::UploadPackageResponse response;
        response.set_offset(static_cast<int64_t>(part.size()));
        std::move(reply)(response);
      });
  router.Handle(
      rpc::kFinishPackage, strand_,
      [this](const std::shared_ptr<rpc::CallContext>&,
             const v1::FinishPackageRequest& request,
             rpc::Reply<v1::FinishPackageResponse> reply) {
        MutexLock lock(mutex_);
        if (packages_.contains(request.hash())) {
          return std::move(reply)(v1::FinishPackageResponse());
        }
        const std::string bytes = std::move(parts_[request.hash()]);
        parts_.erase(request.hash());
        if (Sha256::Of(bytes).bytes() != request.hash()) {
          return std::move(reply)(absl::DataLossError("another hash"));
        }
        packages_[request.hash()] = bytes;
        std::move(reply)(v1::FinishPackageResponse());
      });
}

absl::StatusOr<v1::SubmitJobResponse> FakeHead::Submit(
    const v1::SubmitJobRequest& request) {
  MutexLock lock(mutex_);
  const std::string body = request.spec().SerializeAsString();
  const auto [entry, is_new] =
      requests_.try_emplace(request.request_id(), body, std::string());
  if (is_new) {
    const JobId id = JobId::New(random_);
    entry->second.second = std::string(id.bytes());
    v1::Job& job = jobs_[entry->second.second].job;
    job.set_job_id(entry->second.second);
    job.set_name(request.spec().name());
    job.set_state(v1::JOB_STATE_PENDING);
    job.set_failed_rank(-1);
    *job.mutable_spec() = request.spec();
    job.set_num_workers(request.spec().scaling().num_workers());
  } else if (entry->second.first != body) {
    return absl::AlreadyExistsError("the request id was used");
  }
  v1::SubmitJobResponse response;
  response.set_job_id(entry->second.second);
  return response;
}

absl::Status FakeHead::ReadFile(
    const v1::ReadRunFileRequest& request,
    rpc::StreamWriter<v1::ReadRunFileResponse>& writer) {
  MutexLock lock(mutex_);
  const auto file = files_.find(request.path());
  if (file == files_.end()) return absl::NotFoundError("no such file");
  const auto begin = static_cast<size_t>(request.offset());
  const size_t bytes_max = log_bytes_max_ > 0
                               ? static_cast<size_t>(log_bytes_max_)
                               : file->second.size();
  v1::ReadRunFileResponse response;
  response.set_offset(request.offset());
  response.set_data(file->second.substr(begin, bytes_max));
  COHORT_RETURN_IF_ERROR(writer.Write(response));
  return begin + response.data().size() < file->second.size()
             ? absl::UnavailableError("the stream broke")
             : absl::OkStatus();
}

absl::Status FakeHead::ReadLog(const v1::ReadLogRequest& request,
                               rpc::StreamWriter<v1::ReadLogResponse>& writer) {
  MutexLock lock(mutex_);
  const auto job = jobs_.find(request.job_id());
  if (job == jobs_.end()) return NoSuchJob();
  const std::string& text =
      job->second.logs[LogName(request.rank(), request.stream())];
  const int64_t size = static_cast<int64_t>(text.size());
  const size_t begin = static_cast<size_t>(
      request.offset() < 0 ? std::max<int64_t>(size + request.offset(), 0)
                           : std::min(request.offset(), size));
  const size_t bytes_max =
      log_bytes_max_ > 0 ? static_cast<size_t>(log_bytes_max_) : text.size();
  v1::ReadLogResponse response;
  response.set_attempt(1);
  response.set_offset(static_cast<int64_t>(begin));
  response.set_data(text.substr(begin, bytes_max));
  for (const v1::LogTime& time :
       job->second.log_times[LogName(request.rank(), request.stream())]) {
    *response.add_times() = time;
  }
  if (!response.data().empty()) {
    const absl::Status written = writer.Write(response);
    if (!written.ok()) return written;
    if (repeats_logs_) return writer.Write(response);
  }
  if (begin + response.data().size() < text.size()) {
    return absl::UnavailableError("the node is away");
  }
  return absl::OkStatus();
}

}  // namespace cohort::client
