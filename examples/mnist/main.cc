#include <iostream>
#include <memory>
#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"

#include "common/log.h"
#include "common/real_clock.h"
#include "common/status_macros.h"
#include "examples/mnist/evaluation.h"
#include "examples/mnist/options.h"
#include "examples/mnist/training.h"
#include "examples/open_session.h"
#include "trainer/torch/process.h"

namespace cohort::mnist {
namespace {

constexpr int kExitUsage = 2;
constexpr int kExitFailure = 1;

absl::Status Train(const TrainOptions& options,
                   const torch_adapter::ComputeFacts& facts) {
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<trainer::Session> session,
                          examples::OpenSession(options));
  if (session->is_lead()) {
    std::cout << absl::StrFormat(
                     "training on %d rank%s, attempt %d, %d thread%s a rank, "
                     "%s",
                     session->world(), session->world() == 1 ? "" : "s",
                     session->place().attempt, facts.threads,
                     facts.threads == 1 ? "" : "s", facts.blas)
              << std::endl;
  }
  const MachineClock clock;
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<Training> training,
                          Training::Create(options, *session, clock));
  COHORT_RETURN_IF_ERROR(training->Run());
  return session->Finish();
}

int Main(int argc, char** argv) {
  SetLogProgram("mnist");
  const std::variant<TrainOptions, examples::ExitNow> parsed =
      ParseOptions(argc, argv);
  if (const auto* exit_now = std::get_if<examples::ExitNow>(&parsed)) {
    return exit_now->code;
  }
  const auto& options = std::get<TrainOptions>(parsed);
  const torch_adapter::ComputeFacts facts = torch_adapter::PrepareProcess();
  const absl::Status status =
      options.evaluate.empty() ? Train(options, facts) : Evaluate(options);
  if (status.ok()) return 0;
  std::cerr << "mnist: " << status.message() << std::endl;
  const bool bad_value =
      absl::IsInvalidArgument(status) || absl::IsNotFound(status);
  return bad_value ? kExitUsage : kExitFailure;
}

}  // namespace
}  // namespace cohort::mnist

int main(int argc, char** argv) { return cohort::mnist::Main(argc, argv); }
