#include "client/cli/transfer_progress.h"

#include "absl/strings/str_cat.h"

#include "common/size_text.h"

namespace cohort::cli {
namespace {

constexpr absl::Duration kTransferPeriod = absl::Milliseconds(100);

}  // namespace

TransferProgress::TransferProgress(absl::string_view verb, int64_t total_bytes,
                                   const Clock& clock, Progress::Kind kind,
                                   int fd)
    : verb_(verb),
      total_bytes_(total_bytes),
      clock_(clock),
      start_(clock.Monotonic()),
      last_(start_),
      progress_(kind, fd) {}

void TransferProgress::Show(int64_t done_bytes) {
  if (!first_bytes_) first_bytes_ = done_bytes;
  const absl::Duration now = clock_.Monotonic();
  if (now - last_ < kTransferPeriod) return;
  last_ = now;
  const double rate = static_cast<double>(done_bytes - *first_bytes_) /
                      absl::ToDoubleSeconds(now - start_);
  // A transfer that starts over has less than at first.
  const int64_t shown = rate > 0 ? static_cast<int64_t>(rate) : 0;
  progress_.ShowLive(absl::StrCat(verb_, " ", SizeToText(done_bytes), " of ",
                                  SizeToText(total_bytes_), ", ",
                                  SizeToText(shown), "/s"));
}

}  // namespace cohort::cli
