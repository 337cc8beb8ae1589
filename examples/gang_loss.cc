#include "examples/gang_loss.h"

#include <cmath>
#include <optional>
#include <span>
#include <vector>

#include "absl/strings/str_cat.h"

#include "common/status_macros.h"

namespace cohort::examples {
namespace {

constexpr absl::Duration kPatience =
    absl::Seconds(trainer::kGangPatienceSeconds);

}  // namespace

absl::StatusOr<double> MeanOverGang(trainer::Comm& comm, double sum,
                                    double count) {
  std::vector<double> both{sum, count};
  COHORT_RETURN_IF_ERROR(comm.AllReduce(trainer::Buffer::Of(std::span(both)),
                                        trainer::ReduceOp::kSum, kPatience));
  return both[0] / both[1];
}

absl::StatusOr<GangStep> AgreeOnStep(trainer::Session& session, double loss) {
  const std::optional<trainer::RunNotice> notice = session.notice();
  const bool is_leaving =
      notice.has_value() && notice->deadline < absl::InfiniteDuration();
  std::vector<double> both{loss, is_leaving ? 1.0 : 0.0};
  COHORT_RETURN_IF_ERROR(
      session.comm().AllReduce(trainer::Buffer::Of(std::span(both)),
                               trainer::ReduceOp::kAverage, kPatience));
  return GangStep{.loss = both[0], .is_leaving = both[1] > 0};
}

absl::Status CheckLoss(double loss, int64_t step) {
  if (std::isfinite(loss)) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("the loss is ", loss, " at step ", step,
                   ": lower --lr, or look for damaged input"));
}

}  // namespace cohort::examples
