#include <unistd.h>

#include <iostream>
#include <memory>
#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"

#include "common/log.h"
#include "common/real_clock.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "examples/mlp/device.h"
#include "examples/mlp/gpu_device.h"
#include "examples/mlp/options.h"
#include "examples/mlp/training.h"
#include "examples/open_session.h"

namespace cohort::mlp {
namespace {

constexpr int kExitUsage = 2;
constexpr int kExitFailure = 1;

// Before the gang meets, so that a rank without a GPU says so at once.
absl::StatusOr<std::unique_ptr<Device>> OpenDevice(
    const TrainOptions& options) {
  if (!options.use_gpu) return std::make_unique<CpuDevice>();
  auto driver = trainer::cuda::LoadDriver();
  if (!driver.ok()) return Annotate(driver.status(), "--use-gpu");
  auto gpu =
      GpuDevice::Open(*std::move(driver), trainer::cuda::VisibleOrdinal(0));
  if (!gpu.ok()) return Annotate(gpu.status(), "--use-gpu");
  return *std::move(gpu);
}

void Tell(const absl::Status& status) {
  std::cerr << "mlp: " << status.message() << std::endl;
}

absl::Status Run(Training& training) {
  const absl::Status done = training.Run();
  if (absl::IsDeadlineExceeded(done)) {
    // A GPU that does not answer would hold the destructors, too.
    Tell(done);
    _exit(kExitFailure);
  }
  return done;
}

absl::Status Train(const TrainOptions& options) {
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<Device> device,
                          OpenDevice(options));
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<trainer::Session> session,
                          examples::OpenSession(options, options.use_gpu));
  if (session->is_lead()) {
    std::cout << absl::StrFormat(
                     "training on %d rank%s, attempt %d, in %s on %s",
                     session->world(), session->world() == 1 ? "" : "s",
                     session->place().attempt,
                     trainer::ToString(options.precision), device->name())
              << std::endl;
  }
  const MachineClock clock;
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<Training> training,
                          Training::Create(options, *session, *device, clock));
  COHORT_RETURN_IF_ERROR(Run(*training));
  return session->Finish();
}

int Main(int argc, char** argv) {
  SetLogProgram("mlp");
  const std::variant<TrainOptions, examples::ExitNow> parsed =
      ParseOptions(argc, argv);
  if (const auto* exit_now = std::get_if<examples::ExitNow>(&parsed)) {
    return exit_now->code;
  }
  const absl::Status status = Train(std::get<TrainOptions>(parsed));
  if (status.ok()) return 0;
  Tell(status);
  const bool bad_value =
      absl::IsInvalidArgument(status) || absl::IsNotFound(status);
  return bad_value ? kExitUsage : kExitFailure;
}

}  // namespace
}  // namespace cohort::mlp

int main(int argc, char** argv) { return cohort::mlp::Main(argc, argv); }
