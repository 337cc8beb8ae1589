#include "examples/loss_log.h"

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace cohort::examples {

absl::Status LossLog::Open(const std::string& path,
                           std::span<const double> losses) {
  if (path.empty()) return absl::OkStatus();
  errno = 0;
  file_.open(path, std::ios::trunc);
  if (!file_) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--loss-log ", path, ": ", std::strerror(errno == 0 ? EIO : errno)));
  }
  int64_t step = 0;
  for (const double loss : losses) Write(++step, loss);
  file_.flush();
  return absl::OkStatus();
}

void LossLog::Add(int64_t step, double loss) {
  if (!file_.is_open()) return;
  Write(step, loss);
  file_.flush();
}

void LossLog::Write(int64_t step, double loss) {
  file_ << absl::StrFormat("%d %.17g\n", step, loss);
}

}  // namespace cohort::examples
