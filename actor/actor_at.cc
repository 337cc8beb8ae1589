#include "actor/actor_at.h"

#include <string>
#include <utility>

#include "common/status_macros.h"

namespace cohort::actor {
namespace {

class OneOfProcess final : public CallTarget {
 public:
  OneOfProcess(std::shared_ptr<CallTarget> process, uint32_t actor)
      : process_(std::move(process)), actor_(actor) {}

  uint64_t Call(CalledMethod method, std::string arguments,
                Done done) override {
    method.actor = actor_;
    return process_->Call(method, std::move(arguments), std::move(done));
  }
  void Cancel(uint64_t call) override { process_->Cancel(call); }
  void Tell(uint64_t call, CallNotice notice) override {
    process_->Tell(call, notice);
  }
  void Look(uint64_t call, absl::FunctionRef<bool()> finished) override {
    process_->Look(call, finished);
  }
  std::string WaitReason(uint64_t call) const override {
    return process_->WaitReason(call);
  }
  absl::StatusOr<ActorRef> Ref() const override {
    COHORT_ASSIGN_OR_RETURN(ActorRef ref, process_->Ref());
    ref.actor = actor_;
    return ref;
  }

 private:
  const std::shared_ptr<CallTarget> process_;  // shared: with the others
  const uint32_t actor_;
};

}  // namespace

std::shared_ptr<CallTarget> ActorAt(std::shared_ptr<CallTarget> process,
                                    uint32_t actor) {
  if (actor == 0) return process;
  return std::make_shared<OneOfProcess>(std::move(process), actor);
}

}  // namespace cohort::actor
