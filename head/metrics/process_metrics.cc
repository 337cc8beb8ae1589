#include "head/metrics/process_metrics.h"

#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <optional>
#include <system_error>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

#include "common/file.h"

namespace cohort::head {
namespace {

// Fields of /proc/self/stat after the name in parentheses, which may hold
// anything; the first of them is field 3 of proc(5).
constexpr size_t kFirstField = 3;
constexpr size_t kUserTime = 14 - kFirstField;
constexpr size_t kSystemTime = 15 - kFirstField;
constexpr size_t kThreads = 20 - kFirstField;
constexpr size_t kStartTime = 22 - kFirstField;
constexpr size_t kVirtualBytes = 23 - kFirstField;
constexpr size_t kResidentPages = 24 - kFirstField;

std::optional<std::vector<double>> StatFields() {
  const absl::StatusOr<std::string> stat = ReadFile("/proc/self/stat");
  if (!stat.ok()) return std::nullopt;
  const size_t name_end = stat->rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::vector<double> fields;
  for (const absl::string_view word :
       absl::StrSplit(absl::string_view(*stat).substr(name_end + 1),
                      absl::ByAnyChar(" \n"), absl::SkipEmpty())) {
    double value = 0;
    if (!absl::SimpleAtod(word, &value)) value = 0;  // the state is a letter
    fields.push_back(value);
  }
  if (fields.size() <= kResidentPages) return std::nullopt;
  return fields;
}

// When the machine was started, in seconds since the epoch.
std::optional<double> BootTime() {
  const absl::StatusOr<std::string> stat = ReadFile("/proc/stat");
  if (!stat.ok()) return std::nullopt;
  for (const absl::string_view line : absl::StrSplit(*stat, '\n')) {
    const std::vector<absl::string_view> words = absl::StrSplit(line, ' ');
    double value = 0;
    if (words.size() == 2 && words[0] == "btime" &&
        absl::SimpleAtod(words[1], &value)) {
      return value;
    }
  }
  return std::nullopt;
}

double OpenFiles() {
  std::error_code error;
  double count = -1;  // the one that looks
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/self/fd", error)) {
    (void)entry;
    ++count;
  }
  return count;
}

}  // namespace

std::vector<MetricFamily> ProcessMetrics() {
  std::vector<MetricFamily> families;
  if (const auto fields = StatFields()) {
    const auto tick = static_cast<double>(sysconf(_SC_CLK_TCK));
    const auto page = static_cast<double>(sysconf(_SC_PAGESIZE));
    families.push_back(
        Counter("process_cpu_seconds_total", "User and system time.",
                ((*fields)[kUserTime] + (*fields)[kSystemTime]) / tick));
    families.push_back(Gauge("process_resident_memory_bytes",
                             "Resident memory.",
                             (*fields)[kResidentPages] * page));
    families.push_back(Gauge("process_virtual_memory_bytes", "Virtual memory.",
                             (*fields)[kVirtualBytes]));
    families.push_back(
        Gauge("process_threads", "Threads.", (*fields)[kThreads]));
    if (const auto boot = BootTime()) {
      families.push_back(Gauge("process_start_time_seconds",
                               "When it was started, since the epoch.",
                               *boot + (*fields)[kStartTime] / tick));
    }
  }
  families.push_back(
      Gauge("process_open_fds", "Open file descriptors.", OpenFiles()));
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    families.push_back(Gauge("process_max_fds", "Most of them.",
                             static_cast<double>(limit.rlim_cur)));
  }
  return families;
}

std::vector<MetricFamily> StoreSizeMetrics(const std::string& directory) {
  double bytes = 0;
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator(directory, error)) {
    std::error_code gone;  // between listing and looking
    const auto size = entry.file_size(gone);
    if (!gone) bytes += static_cast<double>(size);
  }
  if (error) return {};
  return {
      Gauge("cohort_store_size_bytes", "The control store's files.", bytes)};
}

}  // namespace cohort::head
