#include "trainer/train/rank_loop.h"

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"

#include "actor/codec.h"
#include "client/metric_log.h"
#include "client/process_environment.h"
#include "common/file.h"
#include "common/hash.h"
#include "common/real_clock.h"
#include "common/status_macros.h"
#include "trainer/hang_guard.h"
#include "trainer/local_session.h"
#include "trainer/train/backend.h"
#include "trainer/train/loop.h"
#include "trainer/train/run.h"
#include "trainer/worker_session.h"

namespace cohort::train {
namespace {

// What a rank has to know of a FitRequest: the job's record has the rest.
struct RankStart {
  std::string loop;
  std::string config;
  std::string resume_from;
  bool use_gpu = false;
  std::string score_attribute;
  std::string score_order;
  COHORT_FIELDS(loop, config, resume_from, use_gpu, score_attribute,
                score_order)
};

constexpr size_t kSpecDigits = 16;

std::string Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

absl::StatusOr<std::unique_ptr<trainer::Session>> OpenSession(
    const FitRequest& request) {
  if (client::IsRank()) {
    COHORT_ASSIGN_OR_RETURN(trainer::WorkerSessionOptions rank,
                            trainer::WorkerSessionFromEnvironment());
    rank.can_use_gpu = request.scaling_config.use_gpu;
    return trainer::WorkerSession::Join(std::move(rank));
  }
  const std::string& storage = request.run_config.storage_path;
  return trainer::LocalSession::Create(
      {.storage_path = storage.empty() ? "results" : storage,
       .restore = request.resume_from});
}

absl::Status CallLoop(const LoopEntry& loop, Run& run,
                      const std::string& config) {
  COHORT_RETURN_IF_ERROR(run.Open());
  try {
    return run.Close(loop.call(run, config));
  } catch (const std::exception& thrown) {
    const std::string text = thrown.what();
    // Behind the first line LibTorch writes a backtrace.
    return run.Close(absl::InternalError(absl::StrCat(
        "the training loop threw: ", text.substr(0, text.find('\n')))));
  } catch (...) {
    return run.Close(absl::InternalError(
        "the training loop threw something other than a std::exception"));
  }
}

Result ResultOf(const Run& run, const absl::Status& done) {
  Result result;
  result.metrics = run.metrics();
  result.metrics_history = run.history().Rows();
  result.checkpoint = run.checkpoint();
  if (result.checkpoint.has_value()) {
    const std::filesystem::path path = result.checkpoint->path;
    result.path = path.parent_path().parent_path().string();
  }
  result.error = done;
  return result;
}

// As torch's @record does for a script, so that the job's verdict is what this
// rank says.
void RecordError(const absl::Status& error) {
  const std::string path = Variable("TORCHELASTIC_ERROR_FILE");
  if (path.empty()) return;
  const nlohmann::json record = {
      {"message",
       {{"message", std::string(error.message())},
        {"extraInfo",
         {{"timestamp",
           absl::StrCat(absl::ToUnixSeconds(MachineClock().Wall()))}}}}}};
  const absl::Status written = WriteFileAtomically(
      path,
      record.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace),
      0600);
  if (!written.ok()) {
    std::fprintf(stderr, "cohort: cannot write down the error: %s\n",
                 std::string(written.message()).c_str());
  }
}

absl::StatusOr<FitRequest> RequestOfRank() {
  std::string bytes;
  if (!absl::Base64Unescape(Variable(kFitVariable), &bytes)) {
    return absl::InvalidArgumentError(
        absl::StrCat(kFitVariable, " is not what a driver's Fit sets"));
  }
  COHORT_ASSIGN_OR_RETURN(RankStart start, DecodeValue<RankStart>(bytes));
  FitRequest request;
  request.loop = std::move(start.loop);
  request.config = std::move(start.config);
  request.resume_from = std::move(start.resume_from);
  request.scaling_config.use_gpu = start.use_gpu;
  request.scaling_config.num_workers = 0;  // the job's
  CheckpointConfig& checkpoints = request.run_config.checkpoint_config;
  checkpoints.score_attribute = std::move(start.score_attribute);
  checkpoints.score_order = std::move(start.score_order);
  request.spec = Sha256::Of(bytes).ToHex().substr(0, kSpecDigits);
  return request;
}

}  // namespace

absl::StatusOr<std::string> EncodeForRanks(const FitRequest& request) {
  if (request.config.size() > kConfigBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the training loop's configuration takes ", request.config.size(),
        " bytes: it can have ", kConfigBytesMax, " (put data into files)"));
  }
  const CheckpointConfig& checkpoints = request.run_config.checkpoint_config;
  COHORT_ASSIGN_OR_RETURN(
      const std::string bytes,
      EncodeValue(RankStart{.loop = request.loop,
                            .config = request.config,
                            .resume_from = request.resume_from,
                            .use_gpu = request.scaling_config.use_gpu,
                            .score_attribute = checkpoints.score_attribute,
                            .score_order = checkpoints.score_order}));
  return absl::Base64Escape(bytes);
}

absl::StatusOr<Result> RunInThisProcess(const FitRequest& request) {
  static std::atomic<bool> has_run = false;
  if (client::IsRank() && has_run.exchange(true)) {
    return absl::FailedPreconditionError(
        "this rank has trained already: a rank runs one Fit (start the second "
        "one from a driver)");
  }
  COHORT_ASSIGN_OR_RETURN(const LoopEntry loop, FindLoop(request.loop));
  const MachineClock clock;
  Backend* const backend = ProgramBackend();
  const bool use_gpu = request.scaling_config.use_gpu;
  std::unique_ptr<trainer::Session> session;
  std::optional<Run> run;
  const absl::Status done = [&]() -> absl::Status {
    std::string place;
    if (backend != nullptr) {
      COHORT_ASSIGN_OR_RETURN(place, backend->Open(use_gpu));
    }
    COHORT_ASSIGN_OR_RETURN(session, OpenSession(request));
    const CheckpointConfig& checkpoints = request.run_config.checkpoint_config;
    Run::Options options{.resume_from = request.resume_from,
                         .on_metrics = request.on_metrics,
                         .score_attribute = checkpoints.score_attribute,
                         .score_is_loss = checkpoints.score_order == "min",
                         .package = Variable("COHORT_PACKAGE"),
                         .spec = request.spec};
    const std::string storage = Variable("COHORT_STORAGE_DIR");
    if (!storage.empty())
      options.metrics_file = absl::StrCat(storage, "/", kMetricLogFile);
    run.emplace(*session, backend, clock, std::move(options));
    run->Log(absl::StrFormat("training on %d rank%s, attempt %d%s%s%s",
                             run->world(), run->world() == 1 ? "" : "s",
                             session->place().attempt,
                             place.empty() ? "" : ", ", place,
                             trainer::ReductionNote(*session, use_gpu)));
    const int asked = request.scaling_config.num_workers;
    if (client::IsRank() && asked > 0 && asked != run->world()) {
      run->Log(absl::StrFormat(
          "num_workers %d is not used: the run has the ranks of its job",
          asked));
    }
    COHORT_RETURN_IF_ERROR(CallLoop(loop, *run, request.config));
    return session->Finish();
  }();
  if (!done.ok()) RecordError(done);
  if (use_gpu && absl::IsDeadlineExceeded(done)) trainer::EndNow(done);
  if (!run.has_value()) return done;
  return ResultOf(*run, done);
}

void ServeRanks() {
  if (!client::IsRank() || std::getenv(kFitVariable) == nullptr) return;
  const absl::Status done = []() -> absl::Status {
    COHORT_ASSIGN_OR_RETURN(const FitRequest request, RequestOfRank());
    // Programs that the loop runs are not ranks of this.
    unsetenv(kFitVariable);
    COHORT_ASSIGN_OR_RETURN(const Result result, RunInThisProcess(request));
    return result.error;
  }();
  if (!done.ok()) {
    std::fprintf(stderr, "cohort: %s\n", std::string(done.message()).c_str());
  }
  std::exit(done.ok() ? EXIT_SUCCESS : EXIT_FAILURE);
}

}  // namespace cohort::train
