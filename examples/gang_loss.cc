#include "examples/gang_loss.h"

#include <cmath>
#include <span>
#include <vector>

#include "absl/strings/str_cat.h"

#include "common/status_macros.h"
#include "trainer/session.h"

namespace cohort::examples {

absl::StatusOr<double> MeanOverGang(trainer::Comm& comm, double sum,
                                    double count) {
  std::vector<double> both{sum, count};
  COHORT_RETURN_IF_ERROR(comm.AllReduce(
      trainer::Buffer::Of(std::span(both)), trainer::ReduceOp::kSum,
      absl::Seconds(trainer::kGangPatienceSeconds)));
  return both[0] / both[1];
}

absl::Status CheckLoss(double loss, int64_t step) {
  if (std::isfinite(loss)) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("the loss is ", loss, " at step ", step,
                   ": lower --lr, or look for damaged input"));
}

}  // namespace cohort::examples
