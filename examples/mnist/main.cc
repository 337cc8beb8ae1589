#include <unistd.h>

#include <iostream>
#include <memory>
#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"

#include "common/log.h"
#include "common/real_clock.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "examples/mnist/evaluation.h"
#include "examples/mnist/options.h"
#include "examples/mnist/training.h"
#include "examples/open_session.h"
#include "trainer/torch/gpu.h"
#include "trainer/torch/process.h"

namespace cohort::mnist {
namespace {

constexpr int kExitUsage = 2;
constexpr int kExitFailure = 1;

// Before the gang meets, so that a rank without a GPU says so at once.
absl::StatusOr<torch::Device> OpenDevice(const TrainOptions& options) {
  if (!options.use_gpu) return torch::Device(torch::kCPU);
  const auto gpu = torch_adapter::OpenGpu();
  if (!gpu.ok()) return Annotate(gpu.status(), "--use-gpu");
  return *gpu;
}

void Tell(const absl::Status& status) {
  std::cerr << "mnist: " << status.message() << std::endl;
}

absl::Status Run(Training& training, torch::Device device) {
  const absl::Status done = training.Run();
  if (absl::IsDeadlineExceeded(done) && !device.is_cpu()) {
    // A GPU that does not answer would hold the destructors, too.
    Tell(done);
    _exit(kExitFailure);
  }
  return done;
}

absl::Status Train(const TrainOptions& options, torch::Device device,
                   const torch_adapter::ComputeFacts& facts) {
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<trainer::Session> session,
                          examples::OpenSession(options, options.use_gpu));
  if (session->is_lead()) {
    std::cout
        << absl::StrFormat(
               "training on %d rank%s, attempt %d, on %s%s, %d thread%s a "
               "rank, %s",
               session->world(), session->world() == 1 ? "" : "s",
               session->place().attempt, device.str(),
               examples::ReductionNote(*session, options.use_gpu),
               facts.threads, facts.threads == 1 ? "" : "s", facts.blas)
        << std::endl;
  }
  const MachineClock clock;
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<Training> training,
                          Training::Create(options, *session, device, clock));
  COHORT_RETURN_IF_ERROR(Run(*training, device));
  return session->Finish();
}

absl::Status TrainOrEvaluate(const TrainOptions& options) {
  const torch_adapter::ComputeFacts facts = torch_adapter::PrepareProcess();
  COHORT_ASSIGN_OR_RETURN(const torch::Device device, OpenDevice(options));
  return options.evaluate.empty() ? Train(options, device, facts)
                                  : Evaluate(options, device);
}

int Main(int argc, char** argv) {
  SetLogProgram("mnist");
  const std::variant<TrainOptions, examples::ExitNow> parsed =
      ParseOptions(argc, argv);
  if (const auto* exit_now = std::get_if<examples::ExitNow>(&parsed)) {
    return exit_now->code;
  }
  const absl::Status status = TrainOrEvaluate(std::get<TrainOptions>(parsed));
  if (status.ok()) return 0;
  Tell(status);
  const bool bad_value =
      absl::IsInvalidArgument(status) || absl::IsNotFound(status);
  return bad_value ? kExitUsage : kExitFailure;
}

}  // namespace
}  // namespace cohort::mnist

int main(int argc, char** argv) { return cohort::mnist::Main(argc, argv); }
