// A group of actors: each rank takes its share of some numbers, and what it
// knows of them is combined on the way back.
//
//   cohort up --detach && ./group_statistic && cohort down
#include <cmath>
#include <iostream>

#include "actor/actor.h"

// Of some numbers: how many, their mean, and the sum of squares about it.
struct Moments {
  double count = 0;
  double mean = 0;
  double squares = 0;
  COHORT_FIELDS(count, mean, squares)
};

// Of two sets of numbers, of all of them.
struct Merge {
  Moments operator()(const Moments& a, const Moments& b) const {
    const double count = a.count + b.count;
    if (count == 0) return a;
    const double apart = b.mean - a.mean;
    return {count, a.mean + apart * b.count / count,
            a.squares + b.squares + apart * apart * a.count * b.count / count};
  }
};

class Share {
 public:
  explicit Share(int numbers) : numbers_(numbers) {}

  // Of every size()-th of 0, 1, ... numbers - 1, beginning with rank().
  Moments Measure() const {
    const cohort::GroupRank& here = cohort::ThisRank();
    Moments all;
    for (int i = here.rank(); i < numbers_; i += here.size()) {
      all = Merge()(all, {1, static_cast<double>(i), 0});
    }
    return all;
  }

 private:
  int numbers_;
};

int main(int argc, char** argv) {
  cohort::Runtime runtime = cohort::Init(argc, argv);
  auto group = runtime.CreateGroup<Share>({}, {{"hosts", 2}, {"cores", 2}},
                                          /*numbers=*/100'001);
  const absl::StatusOr<Moments> all =
      group.Reduce<&Share::Measure, Merge>().Get();
  if (!all.ok()) {
    std::cerr << all.status().message() << "\n";
    return 1;
  }
  std::cout << "mean " << std::llround(all->mean) << ", deviation "
            << std::llround(std::sqrt(all->squares / all->count)) << "\n";
}
