// A rank that can use its GPU (test_gpu_comm.py): says what its communicator
// works on, and sums its rank over the gang.  GPU_RANK_TIMEOUT: the seconds
// that it has for each meeting.

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <span>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/time/time.h"

#include "common/status_macros.h"
#include "trainer/comm/comm.h"
#include "trainer/session.h"
#include "trainer/worker_session.h"

namespace cohort::trainer {
namespace {

absl::Status Run() {
  COHORT_ASSIGN_OR_RETURN(WorkerSessionOptions options,
                          WorkerSessionFromEnvironment());
  options.can_use_gpu = true;
  int timeout = 0;
  // NOLINTNEXTLINE(concurrency-mt-unsafe): the process has one thread yet.
  const char* const text = std::getenv("GPU_RANK_TIMEOUT");
  if (text != nullptr && absl::SimpleAtoi(text, &timeout)) {
    options.gang_timeout = absl::Seconds(timeout);
  }
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<WorkerSession> session,
                          WorkerSession::Join(std::move(options)));
  Comm& comm = session->comm();
  int64_t sum = session->rank();
  COHORT_RETURN_IF_ERROR(comm.AllReduce(Buffer::Of(std::span(&sum, 1)),
                                        ReduceOp::kSum, absl::Seconds(60)));
  std::cout << "works on the " << (comm.allocates_on_device() ? "GPU" : "host")
            << ", sum " << sum << std::endl;
  return session->Finish();
}

}  // namespace
}  // namespace cohort::trainer

int main() {
  const absl::Status status = cohort::trainer::Run();
  if (!status.ok()) std::cerr << status << std::endl;
  return status.ok() ? 0 : 1;
}
