// Calls of several threads to ranks, slices and a whole group, whose ways race
// (GC-2), on threads: what a ThreadSanitizer looks at.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "actor/group_calls.h"
#include "actor/method.h"
#include "common/mutex.h"
#include "common/strand.h"
#include "common/testing/status_matchers.h"
#include "common/thread_pool.h"

namespace cohort::group_calls_threads_test {

using actor::CallTarget;
using actor::GroupCalls;

constexpr int kRanks = 20;
constexpr int kThreads = 3;
constexpr int kCalls = 200;  // of a thread, to all

class Worker {
 public:
  int Do() { return 0; }
};
COHORT_ACTOR(Worker, &Worker::Do);

// Processes that relay; each way from one to another keeps its order, and no
// two ways wait for each other.
class Ranks {
 public:
  explicit Ranks(ThreadPool& pool) : pool_(pool) {}

  // `from`: a rank, or -1, who is none.
  std::shared_ptr<CallTarget> Way(int from, int to) {
    MutexLock lock(mutex_);
    auto& way = ways_[{from, to}];
    if (way == nullptr) way = std::make_shared<Edge>(*this, to, pool_);
    return way;
  }
  // What each rank was called with, in its order.
  std::map<int, std::vector<std::string>> ran() const {
    MutexLock lock(mutex_);
    return ran_;
  }

 private:
  class Edge final : public CallTarget {
   public:
    Edge(Ranks& ranks, int to, ThreadPool& pool)
        : ranks_(ranks), to_(to), strand_(pool) {}
    ~Edge() override { strand_.Drain(); }

    uint64_t Call(actor::CalledMethod method, std::string arguments,
                  Done done) override {
      strand_.Post([this, name = std::string(method.name),
                    arguments = std::move(arguments),
                    done = std::move(done)]() mutable {
        ranks_.Take(to_, name, arguments, std::move(done));
      });
      return 0;
    }
    void Cancel(uint64_t /*call*/) override {}

   private:
    Ranks& ranks_;
    const int to_;
    Strand strand_;
  };

  void Take(int rank, const std::string& method, const std::string& arguments,
            CallTarget::Done done) {
    if (method == actor::kFlushMethod) return std::move(done)(std::string());
    if (method != actor::kRelayMethod) {
      {
        MutexLock lock(mutex_);
        ran_[rank].push_back(arguments);
      }
      return std::move(done)(std::string());
    }
    auto call = *DecodeValue<actor::GroupCall>(arguments);
    const actor::Parts parts = actor::SelfAndBranchesOf(call.members);
    actor::SendParts(
        call, parts,
        [this, rank](const actor::Member& member) {
          return Way(rank, member.rank);
        },
        actor::FanOutOf(call, parts,
                        [done = std::move(done)](auto result) mutable {
                          std::move(done)(EncodeValue(result));
                        }));
  }

  ThreadPool& pool_;
  mutable Mutex mutex_;
  std::map<std::pair<int, int>, std::shared_ptr<Edge>> ways_
      ABSL_GUARDED_BY(mutex_);
  std::map<int, std::vector<std::string>> ran_ ABSL_GUARDED_BY(mutex_);
};

// Of calls that are not waited for.
class Ends {
 public:
  CallTarget::Done Next() {
    MutexLock lock(mutex_);
    ++left_;
    return [this](const absl::StatusOr<std::string>& end) {
      COHORT_EXPECT_OK(end);
      MutexLock ended(mutex_);
      if (--left_ == 0) none_.SignalAll();
    };
  }
  void Await() {
    MutexLock lock(mutex_);
    while (left_ > 0) none_.Wait(mutex_);
  }

 private:
  Mutex mutex_;
  CondVar none_;
  int left_ ABSL_GUARDED_BY(mutex_) = 0;
};

std::vector<int> RanksFrom(int begin) {
  std::vector<int> ranks;
  for (int rank = begin; rank < kRanks; ++rank) ranks.push_back(rank);
  return ranks;
}

TEST(GroupCallsThreadsTest, CallsOfAThreadKeepTheirOrderOnAllWays) {
  const auto pool = std::make_shared<ThreadPool>(3);
  Ranks ranks(*pool);
  std::vector<std::shared_ptr<CallTarget>> targets;
  for (int rank = 0; rank < kRanks; ++rank) {
    targets.push_back(ranks.Way(-1, rank));
  }
  const auto calls = std::make_shared<GroupCalls>(GroupCalls::Options(),
                                                  std::move(targets), pool);
  for (uint32_t slot = 0; slot < kRanks; ++slot) {
    v1::ActorStanding standing;
    standing.set_state(v1::JOB_STATE_RUNNING);
    standing.set_slot(slot);
    standing.set_incarnation(1);
    standing.add_addresses("x");
    calls->SetStanding(standing);
  }
  Ends ends;
  const char* const method = actor::AutoMethod<Worker, &Worker::Do>::Name();
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      const std::vector<std::shared_ptr<CallTarget>> whom = {
          calls->Slice(RanksFrom(0), ""), calls->Rank(kRanks - 1),
          calls->Slice(RanksFrom(kRanks / 2), ""), calls->Rank(t)};
      for (int i = 0; i < kCalls; ++i) {
        for (size_t w = 0; w < whom.size(); ++w) {
          whom[w]->Call(method, absl::StrCat(t, ":", 10'000 + i * 4 + w),
                        ends.Next());
        }
      }
    });
  }
  for (std::thread& each : threads) each.join();
  ends.Await();
  for (const auto& [rank, ran] : ranks.ran()) {
    std::map<char, std::string> last;
    for (const std::string& each : ran) {
      EXPECT_LT(last[each[0]], each) << "rank " << rank;
      last[each[0]] = each;
    }
    EXPECT_GE(ran.size(), kThreads * kCalls);
  }
  // A task of it may be the last that holds the group, and this with it.
  pool->Stop();
}

}  // namespace cohort::group_calls_threads_test
