// An actor: an object in a process of its own, where the cluster has room.
//
//   cohort up --detach && ./counter && cohort down
#include <iostream>

#include "cohort/actor/actor.h"

class Counter {  // nothing to derive from, nothing to register
 public:
  explicit Counter(int start) : value_(start) {}
  int Add(int n) { return value_ += n; }

 private:
  int value_;
};

int main(int argc, char** argv) {
  // In an actor's process this call serves the actor and never returns.
  cohort::Runtime runtime = cohort::Init(argc, argv);
  auto counter = runtime.Create<Counter>({.max_restarts = 3}, /*start=*/10);
  cohort::Future<int> sum = counter.Call<&Counter::Add>(32);
  const absl::StatusOr<int> value = sum.Get();
  if (!value.ok()) {
    std::cerr << value.status().message() << "\n";
    return 1;
  }
  std::cout << *value << "\n";
}
