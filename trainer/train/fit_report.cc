#include "trainer/train/fit_report.h"

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"

#include "client/metric_log.h"
#include "common/status_macros.h"

namespace cohort::train {
namespace {

constexpr absl::Duration kTick = absl::Milliseconds(500);
constexpr absl::Duration kAskEvery = absl::Seconds(1);
constexpr absl::Duration kLineEvery = absl::Seconds(10);
constexpr char kEpoch[] = "epoch";

trainer::CheckpointRecord RecordOf(const v1::Checkpoint& checkpoint) {
  trainer::CheckpointRecord record{checkpoint.path(), checkpoint.step(),
                                   checkpoint.epoch()};
  if (checkpoint.has_score()) record.score = checkpoint.score();
  return record;
}

double NumberOf(const nlohmann::json& metrics, const char* name) {
  const auto found = metrics.find(name);
  return found != metrics.end() && found->is_number() ? found->get<double>()
                                                      : 0;
}

nlohmann::json MetricsOf(absl::string_view json) {
  nlohmann::json metrics = nlohmann::json::parse(json, nullptr, false);
  return metrics.is_object() ? metrics : nlohmann::json::object();
}

absl::Status ErrorOf(const Job& job) {
  if (job.state() == v1::JOB_STATE_SUCCEEDED) return absl::OkStatus();
  const std::string why =
      job.reason().empty() ? "the job ended without a reason" : job.reason();
  if (job.state() == v1::JOB_STATE_STOPPED) return absl::CancelledError(why);
  return absl::InternalError(why);
}

}  // namespace

std::string ProgressText(absl::string_view metrics_json) {
  const nlohmann::json metrics = MetricsOf(metrics_json);
  if (metrics.empty()) return "";
  std::string text = absl::StrFormat("step %.0f", NumberOf(metrics, "step"));
  for (const auto& [name, value] : metrics.items()) {
    if (IsOwnMetric(name) || !value.is_number()) continue;
    absl::StrAppendFormat(&text, ", %s %.4g", name, value.get<double>());
  }
  absl::StrAppendFormat(&text, ", %.0f samples/s",
                        NumberOf(metrics, "samples_per_s"));
  return text;
}

FitReport::FitReport(Cluster& cluster, const JobId& job, std::string name,
                     bool may_grow)
    : cluster_(cluster),
      job_(job),
      name_(std::move(name)),
      may_grow_(may_grow),
      on_terminal_(isatty(STDERR_FILENO) != 0) {}

void FitReport::Begin(bool is_joined) {
  std::fprintf(stderr, "%s: %s job %s\n", name_.c_str(),
               is_joined ? "joins" : "runs as", job_.ToText().c_str());
}

void FitReport::Follow() {
  LogOptions options;
  options.ranks = {0};
  options.standard_error = true;
  options.follow = true;
  options.tick = kTick;
  const absl::Status followed =
      cluster_.Logs(job_, options, [this](const LogChunk& chunk) {
        if (chunk.data.empty()) {
          ShowProgress();
        } else {
          Print(chunk);
        }
        return absl::OkStatus();
      });
  ClearLine();
  if (!followed.ok()) {
    Warn(absl::StrCat("its log is not shown: ", followed.message()));
  }
}

void FitReport::Print(const LogChunk& chunk) {
  ClearLine();
  FILE* const out = chunk.stream == v1::LOG_STREAM_STDERR ? stderr : stdout;
  std::fwrite(chunk.data.data(), 1, chunk.data.size(), out);
  std::fflush(out);
}

void FitReport::ClearLine() {
  if (std::exchange(line_is_shown_, false)) std::fputs("\r\033[K", stderr);
}

void FitReport::ShowProgress() {
  const absl::Duration now = clock_.Monotonic();
  if (now - asked_at_ < kAskEvery) return;
  asked_at_ = now;
  const absl::StatusOr<Job> job = cluster_.Get(job_);
  if (!job.ok()) return;
  if (job->never_fits() && !may_grow_ && never_fits_.empty() &&
      cluster_.Stop(job_).ok()) {
    never_fits_ = job->reason();
  }
  TellMetrics(*job);
  std::string text = ProgressText(job->metrics_json());
  if (text.empty()) {
    text = std::string(job->reason().empty() ? "starting" : job->reason());
  }
  const double progress = NumberOf(MetricsOf(job->metrics_json()), "progress");
  if (begun_at_ == -absl::InfiniteDuration() && progress > 0) {
    begun_at_ = now;
    begun_progress_ = progress;
  }
  if (progress > begun_progress_) {
    const absl::Duration left =
        (now - begun_at_) * ((1 - progress) / (progress - begun_progress_));
    absl::StrAppend(&text, ", ",
                    absl::FormatDuration(absl::Floor(left, absl::Seconds(1))),
                    " left");
  }
  if (text == last_shown_) return;
  if (on_terminal_) {
    ClearLine();
    std::fprintf(stderr, "%s: %s", name_.c_str(), text.c_str());
    line_is_shown_ = true;
  } else if (now - shown_at_ >= kLineEvery) {
    std::fprintf(stderr, "%s: %s\n", name_.c_str(), text.c_str());
    shown_at_ = now;
  }
  last_shown_ = text;
}

void FitReport::TellMetrics(const Job& job) {
  if (on_metrics_ == nullptr || job.metrics_count() == told_reports_) return;
  told_reports_ = job.metrics_count();
  const nlohmann::json shown = MetricsOf(job.metrics_json());
  Metrics metrics;
  for (const auto& [name, value] : shown.items()) {
    if (value.is_number()) metrics[name] = value.get<double>();
  }
  on_metrics_(metrics);
}

void FitReport::Warn(absl::string_view what) {
  std::fprintf(stderr, "%s: %s\n", name_.c_str(), std::string(what).c_str());
}

std::vector<HistoryRow> FitReport::ReadHistory() {
  const absl::StatusOr<MetricLog> log = ReadMetricLog(cluster_, job_);
  if (!log.ok()) {
    Warn(absl::StrCat("no history of metrics: ", log.status().message()));
    return {};
  }
  if (!log->file_error.ok()) {
    Warn(absl::StrCat("not every step is in the history of metrics: ",
                      log->file_error.message()));
  }
  std::vector<HistoryRow> rows;
  for (const MetricRow& row : log->rows) {
    HistoryRow& made = rows.emplace_back();
    made.step = row.step;
    made.metrics = row.values;
    const auto epoch = made.metrics.find(kEpoch);
    if (epoch == made.metrics.end()) continue;
    made.epoch = static_cast<int64_t>(epoch->second);
    made.metrics.erase(epoch);
  }
  return rows;
}

Result FitReport::End(const Job& ended, const std::string& storage_path) {
  TellMetrics(ended);
  Result result;
  result.job = job_;
  result.error = never_fits_.empty() ? ErrorOf(ended)
                                     : absl::InvalidArgumentError(never_fits_);
  const nlohmann::json metrics = MetricsOf(ended.metrics_json());
  for (const auto& [name, value] : metrics.items()) {
    if (!IsOwnMetric(name) && value.is_number()) {
      result.metrics[name] = value.get<double>();
    }
  }
  result.metrics_history = ReadHistory();
  if (!ended.checkpoint().path().empty()) {
    result.checkpoint = RecordOf(ended.checkpoint());
    for (const v1::Checkpoint& best : ended.best_checkpoints()) {
      result.best_checkpoints.push_back(RecordOf(best));
    }
    const std::filesystem::path path = ended.checkpoint().path();
    result.path = path.parent_path().parent_path().string();
  } else if (!storage_path.empty()) {
    result.path = absl::StrCat(storage_path, "/", job_.ToText());
  }
  return result;
}

}  // namespace cohort::train
