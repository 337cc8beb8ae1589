#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"

#include "common/real_clock.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "examples/mlp/device.h"
#include "examples/mlp/gpu_device.h"
#include "examples/mlp/options.h"
#include "examples/mlp/training.h"
#include "examples/open_session.h"
#include "examples/program.h"
#include "trainer/cuda/call_watch.h"
#include "trainer/hang_guard.h"

namespace cohort::mlp {
namespace {

namespace cuda = trainer::cuda;

// Of one call of the driver: the longest compile kernels for a GPU that is
// newer than this build, and wake up a machine's GPUs.
constexpr absl::Duration kCallPatience = absl::Minutes(1);

// A GPU under a watch that ends the process by name when a call of the driver
// does not come back.
class WatchedGpu {
 public:
  WatchedGpu()
      : ordinal_(cuda::VisibleOrdinal(0)),
        watch_(cuda::VisibleName(ordinal_), kCallPatience,
               [](absl::string_view why) {
                 trainer::EndNow(absl::DeadlineExceededError(why));
               }) {}

  absl::Status Open() {
    COHORT_ASSIGN_OR_RETURN(auto driver,
                            watch_.Load([] { return cuda::LoadDriver(); }));
    COHORT_ASSIGN_OR_RETURN(gpu_, GpuDevice::Open(std::move(driver), ordinal_));
    watch_.SetPlace(gpu_->name());
    return absl::OkStatus();
  }
  Device& device() { return *gpu_; }

 private:
  const int ordinal_;
  // In this order: the device's calls are watched to the last.
  cuda::CallWatch watch_;
  std::unique_ptr<GpuDevice> gpu_;
};

absl::Status TrainIn(trainer::Session& session, const TrainOptions& options,
                     Device& device, const Clock& clock,
                     std::unique_ptr<Training>& training) {
  if (session.is_lead()) {
    examples::Say(absl::StrFormat(
        "training on %d rank%s, attempt %d, in %s on %s%s", session.world(),
        session.world() == 1 ? "" : "s", session.place().attempt,
        trainer::ToString(options.precision), device.name(),
        trainer::ReductionNote(session, options.use_gpu)));
  }
  COHORT_ASSIGN_OR_RETURN(training,
                          Training::Create(options, session, device, clock));
  COHORT_RETURN_IF_ERROR(training->Run());
  return session.Finish();
}

absl::Status TrainOn(Device& device, const TrainOptions& options) {
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<trainer::Session> session,
                          examples::OpenSession(options, options.use_gpu));
  const MachineClock clock;
  std::unique_ptr<Training> training;
  absl::Status done = TrainIn(*session, options, device, clock, training);
  if (device.is_gpu() && absl::IsDeadlineExceeded(done)) {
    trainer::EndNow(done);
  }
  return done;
}

absl::Status Train(const TrainOptions& options) {
  if (!options.use_gpu) {
    CpuDevice cpu;
    return TrainOn(cpu, options);
  }
  WatchedGpu gpu;
  // Before the gang meets, so that a rank without a GPU says so at once.
  COHORT_RETURN_IF_ERROR(Annotate(gpu.Open(), "--use-gpu"));
  return TrainOn(gpu.device(), options);
}

}  // namespace
}  // namespace cohort::mlp

int main(int argc, char** argv) {
  return cohort::examples::RunProgram(
      "mlp", argc, argv, cohort::mlp::ParseOptions, cohort::mlp::Train);
}
