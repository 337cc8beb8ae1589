#include "client/cli/progress.h"

#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

#include "client/cli/table.h"
#include "client/message_text.h"
#include "common/duration_text.h"
#include "common/printable_text.h"
#include "rpc/enum_text.h"
#include "rpc/wire_values.h"

namespace cohort::cli {
namespace {

constexpr char kEraseLine[] = "\r\033[K";

// What changes while nothing happens: how long it runs and what it reports.
std::string LiveLine(const Job& job) {
  std::string line = JobLine(job);
  if (job.has_ran() && !HasEnded(job.state())) {
    absl::StrAppend(&line, " ", AgeText(rpc::FromWire(job.ran())));
  }
  if (!job.metrics_json().empty()) {
    absl::StrAppend(&line, " ", job.metrics_json());
  }
  return line;
}

}  // namespace

Progress::Kind Progress::KindFor(int fd) {
  return isatty(fd) != 0 ? Kind::kLive : Kind::kPlain;
}

void Progress::Show(const Job& job) {
  if (kind_ == Kind::kNone) return;
  if (kind_ == Kind::kPlain) {
    const std::string line = OneLine(JobLine(job));
    if (line != last_) Write(line + "\n");
    last_ = line;
    return;
  }
  ShowLive(LiveLine(job));
}

void Progress::ShowLive(absl::string_view text) {
  if (kind_ != Kind::kLive) return;
  std::string line = OneLine(text);
  // A line that wraps could not be taken away again.
  const size_t known = LineColumns(fd_);
  const size_t columns = known > 0 ? known : 80;
  if (line.size() >= columns) line.resize(columns - 1);
  Write(kEraseLine + line);
  is_drawn_ = true;
}

void Progress::Finish() {
  if (is_drawn_) Write(kEraseLine);
  is_drawn_ = false;
}

void Progress::Write(absl::string_view text) const {
  while (!text.empty()) {
    const ssize_t n = write(fd_, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return;  // Nobody looks any more.
    text.remove_prefix(static_cast<size_t>(n));
  }
}

std::string AgeText(absl::Duration age) {
  if (age < absl::Seconds(1)) return "0s";
  return DurationToText(absl::Trunc(age, absl::Seconds(1)));
}

std::string CountsText(const v1::ArrayStatus& array) {
  std::vector<std::string> counts;
  for (const v1::ArrayStatus::StateCount& each : array.counts()) {
    counts.push_back(absl::StrCat(each.count(), " ", EnumText(each.state())));
  }
  return absl::StrJoin(counts, ", ");
}

std::string JobLine(const Job& job) {
  std::string line =
      absl::StrCat("job ", IdText(job.job_id()), " ", EnumText(job.state()));
  absl::string_view reason = job.reason();
  if (job.attempt() > 1) {
    const std::string attempt = absl::StrCat("attempt ", job.attempt());
    absl::StrAppend(&line, " ", attempt);
    absl::ConsumePrefix(&reason, attempt + ": ");
  }
  if (job.has_array()) {
    absl::StrAppend(&line, " (", CountsText(job.array()), ")");
  }
  if (!reason.empty()) absl::StrAppend(&line, ": ", reason);
  return line;
}

}  // namespace cohort::cli
