// Calls to a group of actors beside calls to one of it, on a cluster of its
// own. See README.md.

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

#include "actor/actor.h"
#include "bench/report.h"
#include "common/check.h"

namespace cohort::bench {

// In no anonymous namespace: it is called by its name.
class Member {
 public:
  int Rank() const { return ThisRank().rank(); }
};

namespace {

// How long `call` takes, in us, `count` times.
void Time(int count, const std::function<absl::Status()>& call,
          Samples& samples) {
  for (int i = 0; i < count; ++i) {
    const absl::Time start = absl::Now();
    const absl::Status status = call();
    samples.values.push_back(absl::ToDoubleMicroseconds(absl::Now() - start));
    COHORT_CHECK(status.ok()) << status.ToString();
  }
}

// The median and the 99th percentile of each run, beside those of one call.
class Pair {
 public:
  explicit Pair(const std::string& name)
      : middle_{.name = name + "/p50", .unit = "us"},
        slow_{.name = name + "/p99", .unit = "us"} {}

  void Add(const Samples& run) {
    middle_.samples.values.push_back(run.median());
    slow_.samples.values.push_back(run.Percentile(99));
  }
  void SetFloor(const Pair& one) {
    middle_.floor = one.middle_.samples.median();
    slow_.floor = one.slow_.samples.median();
  }
  void AddTo(Report& report) const {
    report.Add(middle_);
    report.Add(slow_);
  }

 private:
  Figure middle_;
  Figure slow_;
};

void Measure(Runtime& runtime, int ranks, const Flags& flags, Report& report) {
  const auto group = runtime.CreateGroup<Member>({}, {{"ranks", ranks}});
  const auto one = group.at(ranks - 1);
  const auto call_one = [&] {
    return one.Call<&Member::Rank>().Get().status();
  };
  const auto call_all = [&] {
    return group.Call<&Member::Rank>().Get().status();
  };
  const auto call_each = [&] {
    return GetAll(group.CallEach<&Member::Rank>()).status();
  };
  const auto reduce = [&] {
    return group.Reduce<&Member::Rank, Sum>().Get().status();
  };
  Pair single(absl::StrCat("one_of_", ranks));
  Pair all(absl::StrCat("call/", ranks));
  Pair each(absl::StrCat("each/", ranks));
  Pair sum(absl::StrCat("reduce/", ranks));
  const int calls = flags.quick ? 300 : 2'000;
  Samples warm;
  Time(calls / 10, call_all, warm);
  for (int run = 0; run < (flags.quick ? 3 : 9); ++run) {
    const std::pair<Pair*, std::function<absl::Status()>> turns[] = {
        {&single, call_one},
        {&all, call_all},
        {&each, call_each},
        {&sum, reduce}};
    for (const auto& [pair, call] : turns) {
      Samples samples;
      Time(calls, call, samples);
      pair->Add(samples);
    }
  }
  for (Pair* const pair : {&all, &each, &sum}) pair->SetFloor(single);
  for (const Pair* pair : {&single, &all, &each, &sum}) pair->AddTo(report);
  COHORT_CHECK(runtime.Kill(group).ok());
}

}  // namespace

int Main(int argc, char** argv, Runtime runtime) {
  const Flags flags = ParseFlags(argc, argv);
  Report report("groups", flags);
  for (const int ranks : {8, 32}) Measure(runtime, ranks, flags, report);
  return 0;
}

}  // namespace cohort::bench

int main(int argc, char** argv) {
  return cohort::bench::Main(argc, argv, cohort::Init(argc, argv));
}
