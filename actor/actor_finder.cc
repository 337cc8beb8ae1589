#include "actor/actor_finder.h"

#include <utility>
#include <vector>

#include "common/mutex.h"

namespace cohort::actor {
namespace {

struct FinderHolder {
  Mutex mutex;
  std::vector<std::shared_ptr<ActorFinder>> finders ABSL_GUARDED_BY(mutex);
};

// Never ended: threads may ask until the program is gone.
FinderHolder& FindersOfProcess() {
  static auto* const holder = new FinderHolder;
  return *holder;
}

class DeadTarget final : public CallTarget {
 public:
  explicit DeadTarget(absl::Status why) : why_(std::move(why)) {}

  uint64_t Call(CalledMethod /*method*/, std::string /*arguments*/,
                Done done) override {
    std::move(done)(why_);
    return 0;
  }
  void Cancel(uint64_t /*call*/) override {}
  absl::StatusOr<ActorRef> Ref() const override { return why_; }

 private:
  const absl::Status why_;
};

}  // namespace

std::shared_ptr<ActorFinder> ProcessActorFinder() {
  FinderHolder& holder = FindersOfProcess();
  MutexLock lock(holder.mutex);
  return holder.finders.empty() ? nullptr : holder.finders.front();
}

void AddActorFinder(std::shared_ptr<ActorFinder> finder) {
  FinderHolder& holder = FindersOfProcess();
  MutexLock lock(holder.mutex);
  holder.finders.push_back(std::move(finder));
}

void RemoveActorFinder(const std::shared_ptr<ActorFinder>& finder) {
  FinderHolder& holder = FindersOfProcess();
  MutexLock lock(holder.mutex);
  std::erase(holder.finders, finder);
}

std::shared_ptr<CallTarget> NoTarget(absl::Status why) {
  return std::make_shared<DeadTarget>(std::move(why));
}

}  // namespace cohort::actor
