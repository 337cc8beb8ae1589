#include "trainer/comm/gpu_comm.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

#include "common/real_clock.h"
#include "common/status_macros.h"

namespace cohort::trainer {
namespace {

bool LeavesUsable(const absl::Status& status) {
  return status.ok() || absl::IsInvalidArgument(status) ||
         absl::IsResourceExhausted(status);
}

}  // namespace

GpuComm::GpuComm(std::unique_ptr<GpuContext> context, std::string description)
    : Comm(context->identity()),
      context_(std::move(context)),
      description_(std::move(description)) {}

absl::Status GpuComm::Zero(std::span<std::byte> memory) {
  const absl::Status done = context_->Do(
      [context = context_.get(), memory](OwnerThread& owner) {
        return context->stream().Zero(owner, memory);
      },
      MonotonicNow() + context_->options().deadlines.memory, "zeroing memory");
  return done.ok() ? done : context_->EndFor(done);
}

absl::Status GpuComm::CheckPeers() const {
  COHORT_RETURN_IF_ERROR(context_->ended());
  return context_->control().CheckPeers();
}

void GpuComm::Revoke() {
  context_->End(absl::StrCat("epoch ", epoch(), " is revoked"));
  context_->control().Revoke();
}

absl::Status GpuComm::Run(const Call& call) {
  COHORT_RETURN_IF_ERROR(context_->ended());
  const absl::Status done = RunUntil(call, MonotonicNow() + call.deadline);
  return LeavesUsable(done) ? done : context_->EndFor(done);
}

absl::Status GpuComm::GatherWords(const Call& call, std::span<int64_t> words,
                                  absl::Duration until) {
  Comm& control = context_->control();
  const absl::Duration left = until - MonotonicNow();
  const absl::Status met =
      control.AllReduce(Buffer::Of(words), ReduceOp::kSum, left);
  if (met.ok()) return met;
  const Call meeting = {.kind = Kind::kAllReduce,
                        .sequence = control.sequence(),
                        .op = ReduceOp::kSum};
  // In the words of this call: its name, its deadline.
  const std::string text = absl::StrReplaceAll(
      absl::StripPrefix(met.message(), absl::StrCat(meeting.ToString(), ": ")),
      {{absl::FormatDuration(left), absl::FormatDuration(call.deadline)}});
  return absl::IsDeadlineExceeded(met) ? absl::DeadlineExceededError(text)
                                       : absl::AbortedError(text);
}

}  // namespace cohort::trainer
