#include "worker/log_sweep.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include "common/file.h"
#include "common/log.h"

namespace cohort::worker {
namespace {

// What lies in `directory`; nothing where it cannot be listed.
std::vector<std::string> PathsIn(const std::string& directory) {
  std::vector<std::string> paths;
  std::error_code error;
  for (std::filesystem::directory_iterator each(directory, error);
       !error && each != std::filesystem::directory_iterator();
       each.increment(error)) {
    paths.push_back(each->path().string());
  }
  return paths;
}

}  // namespace

LogSweep::LogSweep(Limits limits, const NodeDirectories& directories,
                   const WorkDirectories& work, const Clock& clock,
                   Executor& strand, Executor& bulk)
    : limits_(limits),
      directories_(directories),
      work_(work),
      clock_(clock),
      strand_(strand),
      bulk_(bulk) {}

void LogSweep::Start() {
  strand_.PostAfter(kPeriod, [this] {
    bulk_.Post([this] {
      Sweep();
      strand_.Post([this] { Start(); });
    });
  });
}

void LogSweep::Sweep() {
  int64_t total = 0;
  std::vector<Log> logs = Ended(total);
  std::sort(logs.begin(), logs.end(),
            [](const Log& a, const Log& b) { return a.written < b.written; });
  for (const Log& log : logs) {
    const bool is_old = clock_.Wall() - log.written > limits_.age;
    if (total <= limits_.bytes && !is_old) break;
    total -= log.bytes;
    Remove(log);
  }
}

std::vector<LogSweep::Log> LogSweep::Ended(int64_t& total) {
  std::set<std::string> here;
  for (const v1::DesiredPlace& place : work_.Here()) {
    here.insert(
        directories_.Logs(place.job_id(), place.number(), place.attempt_id()));
  }
  std::vector<Log> logs;
  for (const std::string& job : PathsIn(directories_.AllLogs())) {
    for (const std::string& attempt : PathsIn(job)) {
      const bool is_here = here.contains(attempt);
      const auto known = ended_.find(attempt);
      Log log;
      if (!is_here && known != ended_.end()) {
        log = known->second;
      } else {
        log.path = attempt;
        log.written = absl::InfinitePast();
        for (const std::string& file : PathsIn(attempt)) {
          struct stat info;
          if (stat(file.c_str(), &info) != 0) continue;
          log.bytes += int64_t{info.st_blocks} * 512;
          log.written =
              std::max(log.written, absl::TimeFromTimespec(info.st_mtim));
        }
      }
      total += log.bytes;
      if (is_here) continue;
      ended_[attempt] = log;
      logs.push_back(std::move(log));
    }
  }
  return logs;
}

void LogSweep::Remove(const Log& log) {
  const absl::Status removed = RemoveTree(log.path);
  COHORT_LOG(kInfo, "log_removed", {"directory", log.path},
             {"bytes", log.bytes}, {"status", removed.message()});
  ended_.erase(log.path);
  rmdir(ParentDirectory(log.path).c_str());  // unless there are others
}

}  // namespace cohort::worker
