#include "trainer/comm/gpu_context.h"

#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/log.h"
#include "trainer/cuda/device.h"

namespace cohort::trainer {

GpuCommOptions GpuOfThisMachine() {
  GpuCommOptions options;
  const char* const granted = std::getenv("CUDA_VISIBLE_DEVICES");
  if (granted != nullptr && *granted == '\0') {
    options.driver = absl::FailedPreconditionError(
        "no GPU was granted: CUDA_VISIBLE_DEVICES is empty");
    return options;
  }
  options.device = cuda::VisibleOrdinal(0);
  options.driver =
      cuda::Lookup<cuda::DriverTable>::By([](cuda::BeforeCall before) {
        return cuda::LoadDriver(cuda::kDriverLibrary, before);
      });
  options.nccl = cuda::Lookup<nccl::Library>::By([](cuda::BeforeCall before) {
    return nccl::LoadLibrary(/*wanted=*/"", before);
  });
  return options;
}

GpuContext::GpuContext(GpuCommOptions options, Comm& control)
    : options_(std::move(options)),
      control_(control),
      identity_{.rank = control.rank(),
                .world = control.world(),
                .epoch = control.epoch()},
      stream_(identity_, options_.device),
      nccl_(identity_, stream_, options_.deadlines),
      shared_(stream_, options_.kernels),
      owner_(OwnerOptions()) {}

GpuContext::~GpuContext() = default;

OwnerThread::Options GpuContext::OwnerOptions() {
  return {
      .quiet =
          [this](OwnerThread& owner) {
            const auto end = nccl_.Quiet(owner, owner.ended().message());
            if (!end.has_value() || !options_.tell) return;
            owner.SetCall("telling of the end");
            options_.tell(*end);
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
      .leave = options_.deadlines.finish,
      .kill = [this](absl::string_view hangs_in) { Kill(hangs_in); },
  };
}

void GpuContext::Kill(absl::string_view hangs_in) {
  const std::string why = absl::StrCat(stream_.Place(), " of epoch ",
                                       identity_.epoch, " hangs in ", hangs_in);
  COHORT_LOG(kError, "gpu_stuck", {"rank", identity_.rank},
             {"epoch", identity_.epoch}, {"in", hangs_in}, {"why", why});
  if (options_.tell) {
    options_.tell({.level = GpuEnd::Level::kKilled, .why = why});
  }
  if (options_.kill) {
    options_.kill(why);
  } else {
    kill(getpid(), SIGKILL);
  }
}

absl::Status GpuContext::Await(const OwnerThread::Job& job,
                               absl::Duration until,
                               absl::string_view what) const {
  const absl::Status done =
      owner_.Await(job, until, [this] { return control_.CheckPeers(); });
  if (!absl::IsDeadlineExceeded(done)) return done;
  return absl::DeadlineExceededError(absl::StrCat(
      stream_.Place(), ": ", what, " is not over, in ", owner_.call()));
}

absl::Status GpuContext::Do(OwnerThread::Work work, absl::Duration until,
                            absl::string_view what) {
  const auto job = Post(std::move(work));
  return Await(*job, until, what);
}

absl::Status GpuContext::EndFor(const absl::Status& why) {
  End(why.message());
  // Peers with the same deadline shall say whom they miss, too.
  if (absl::IsDeadlineExceeded(why)) return why;
  control_.Revoke();
  return absl::AbortedError(why.message());
}

}  // namespace cohort::trainer
