#include "trainer/comm/gpu_seat.h"

#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/log.h"
#include "trainer/cuda/device.h"

namespace cohort::trainer {
namespace {

void KillProcess(absl::string_view) { kill(getpid(), SIGKILL); }

template <typename Found>
std::shared_ptr<const Found> OrNull(
    const absl::StatusOr<std::shared_ptr<const Found>>& found) {
  return found.ok() ? *found : nullptr;
}

}  // namespace

GpuCommOptions GpuOfThisMachine() {
  GpuCommOptions options;
  const char* const granted = std::getenv("CUDA_VISIBLE_DEVICES");
  if (granted != nullptr && *granted == '\0') {
    options.driver = absl::FailedPreconditionError(
        "no GPU was granted: CUDA_VISIBLE_DEVICES is empty");
    return options;
  }
  options.device = cuda::VisibleOrdinal(0);
  options.driver = cuda::LoadDriver();
  options.nccl = nccl::LoadLibrary();
  return options;
}

GpuSeat::GpuSeat(GpuCommOptions options, Comm& control)
    : options_(std::move(options)),
      control_(control),
      identity_{.rank = control.rank(),
                .world = control.world(),
                .epoch = control.epoch()},
      stream_(identity_, OrNull(options_.driver)),
      nccl_(identity_, stream_, OrNull(options_.nccl), options_.deadlines),
      shared_(stream_, options_.kernels),
      owner_(OwnerOptions()) {}

GpuSeat::~GpuSeat() = default;

OwnerThread::Options GpuSeat::OwnerOptions() {
  return {
      .quiet =
          [this](OwnerThread& owner) {
            nccl_.Quiet(owner, owner.ended().message());
          },
      .close =
          [this](OwnerThread& owner) {
            const absl::Status drained = stream_.Drain(owner);
            if (!drained.ok()) {
              COHORT_LOG(kWarning, "gpu_stream_failed",
                         {"rank", identity_.rank}, {"why", drained.message()});
            }
            shared_.Close(owner);
            nccl_.Close(owner);
            stream_.Close(owner);
          },
      .deadline = options_.deadlines.quiet,
      .kill =
          [identity = identity_,
           kill_process = options_.kill
                              ? options_.kill
                              : std::function<void(absl::string_view)>(
                                    KillProcess)](absl::string_view hangs_in) {
            COHORT_LOG(kError, "gpu_stuck", {"rank", identity.rank},
                       {"epoch", identity.epoch}, {"in", hangs_in});
            kill_process(absl::StrCat("rank ", identity.rank, " of epoch ",
                                      identity.epoch, " hangs in ", hangs_in));
          },
  };
}

absl::Status GpuSeat::Await(const OwnerThread::Job& job, absl::Duration until,
                            absl::string_view what) const {
  const absl::Status done =
      owner_.Await(job, until, [this] { return control_.CheckPeers(); });
  if (!absl::IsDeadlineExceeded(done)) return done;
  return absl::DeadlineExceededError(absl::StrCat(
      "rank ", identity_.rank, " on its GPU: ", what, " is not over"));
}

absl::Status GpuSeat::Do(OwnerThread::Work work, absl::Duration until,
                         absl::string_view what) {
  const auto job = Post(std::move(work));
  return Await(*job, until, what);
}

absl::Status GpuSeat::EndFor(const absl::Status& why) {
  End(why.message());
  // Peers with the same deadline shall say whom they miss, too.
  if (absl::IsDeadlineExceeded(why)) return why;
  control_.Revoke();
  return absl::AbortedError(why.message());
}

}  // namespace cohort::trainer
