#include "actor/owned_target.h"

#include <utility>

namespace cohort::actor {

OwnedTarget::OwnedTarget(std::shared_ptr<Line> line, ActorRef ref)
    : ref_(std::move(ref)), line_(std::move(line)) {}

OwnedTarget::OwnedTarget(absl::Status why) : dropped_(std::move(why)) {}

uint64_t OwnedTarget::Call(CalledMethod method, std::string arguments,
                           Done done) {
  const std::shared_ptr<Line> to = line();
  if (to != nullptr) {
    return to->channel.Call(method, std::move(arguments), std::move(done));
  }
  std::move(done)(dropped());
  return 0;
}

void OwnedTarget::Cancel(uint64_t call) {
  if (const std::shared_ptr<Line> to = line()) to->channel.Cancel(call);
}

void OwnedTarget::Tell(uint64_t call, CallNotice notice) {
  if (const std::shared_ptr<Line> to = line()) to->channel.Tell(call, notice);
}

void OwnedTarget::Look(uint64_t call, absl::FunctionRef<bool()> finished) {
  if (const std::shared_ptr<Line> to = line()) to->channel.Look(call, finished);
}

std::string OwnedTarget::WaitReason(uint64_t call) const {
  const std::shared_ptr<Line> to = line();
  return to == nullptr ? "" : to->channel.WaitReason(call);
}

absl::StatusOr<ActorRef> OwnedTarget::Ref() const {
  const absl::Status dropped = this->dropped();
  if (!dropped.ok()) return dropped;
  return ref_;
}

std::shared_ptr<Line> OwnedTarget::line() const {
  MutexLock lock(mutex_);
  return line_;
}

void OwnedTarget::Drop(const absl::Status& why) {
  std::shared_ptr<Line> last;
  {
    MutexLock lock(mutex_);
    dropped_ = why;
    last = std::move(line_);
  }
  if (last != nullptr) last->channel.End(why);
}

absl::Status OwnedTarget::dropped() const {
  MutexLock lock(mutex_);
  return dropped_;
}

}  // namespace cohort::actor
