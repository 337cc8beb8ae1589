#include "head/metrics/call_metrics.h"

#include "absl/strings/str_cat.h"

namespace cohort::head {
namespace {

// "ClusterService/GetJob" of "/cohort.v1.ClusterService/GetJob".
std::string ShortName(absl::string_view path) {
  const size_t dot = path.rfind('.');
  return std::string(dot == absl::string_view::npos ? path
                                                    : path.substr(dot + 1));
}

}  // namespace

void CallMetrics::OnAnswered(absl::string_view path, bool is_stream,
                             absl::StatusCode code, absl::Duration took) {
  const std::string name = ShortName(path);
  MutexLock lock(mutex_);
  Method& method = methods_[name];
  ++method.answers[code];
  method.is_stream = method.is_stream || is_stream;
  if (!is_stream) method.took.Add(took);
}

std::vector<MetricFamily> CallMetrics::Families() const {
  MetricFamily answers =
      Counter("cohort_rpc_requests_total", "Calls answered and streams ended.");
  MetricFamily took;
  took.name = "cohort_rpc_request_duration_seconds";
  took.help = "From a call's arrival to its answer; streams are not in it.";
  took.type = MetricType::kHistogram;
  MutexLock lock(mutex_);
  for (const auto& [name, method] : methods_) {
    for (const auto& [code, count] : method.answers) {
      answers.Add({{"method", name}, {"code", absl::StatusCodeToString(code)}},
                  static_cast<double>(count));
    }
    if (method.is_stream || method.took.count() == 0) continue;
    took.samples.push_back(
        {.labels = {{"method", name}}, .value = 0, .histogram = method.took});
  }
  return {std::move(answers), std::move(took)};
}

}  // namespace cohort::head
