#include "actor/shared_threads.h"

#include <algorithm>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/mutex.h"
#include "common/testing/status_matchers.h"

namespace cohort::shared_threads_test {

using actor::SharedThreads;

// Counts threads that meet here.
class Meeting {
 public:
  void Come() {
    MutexLock lock(mutex_);
    ++came_;
    changed_.SignalAll();
  }
  void Await(int count) {
    MutexLock lock(mutex_);
    while (came_ < count) changed_.Wait(mutex_);
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  int came_ ABSL_GUARDED_BY(mutex_) = 0;
};

class SharedThreadsTest : public ::testing::Test {
 protected:
  Meeting done_;
};

TEST_F(SharedThreadsTest, RunsNoMoreThanSoManyAtOnce) {
  Mutex mutex;
  int running = 0;
  int most = 0;
  SharedThreads threads(2);
  for (int i = 0; i < 200; ++i) {
    threads.Post([&] {
      {
        MutexLock lock(mutex);
        most = std::max(most, ++running);
      }
      {
        MutexLock lock(mutex);
        --running;
      }
      done_.Come();
    });
  }
  done_.Await(200);
  EXPECT_LE(most, 2);
}

TEST_F(SharedThreadsTest, OneThatWaitsLetsAnotherRun) {
  SharedThreads threads(1);
  Meeting first;
  Meeting second;
  threads.Post([&] {
    first.Come();
    ASSERT_THAT(threads.OnWait(), IsOk());
    second.Await(1);
    threads.OnWaited();
    done_.Come();
  });
  threads.Post([&] {
    second.Come();
    done_.Come();
  });
  done_.Await(2);
}

TEST_F(SharedThreadsTest, RefusesToWaitBeyondItsBound) {
  SharedThreads threads(1);
  std::vector<absl::Status> ends(actor::kGivenWayMax + 1);
  threads.Post([&] {
    for (absl::Status& each : ends) each = threads.OnWait();
    for (int i = 0; i < actor::kGivenWayMax; ++i) threads.OnWaited();
    done_.Come();
  });
  done_.Await(1);
  EXPECT_THAT(ends[actor::kGivenWayMax - 1], IsOk());
  EXPECT_TRUE(absl::IsResourceExhausted(ends[actor::kGivenWayMax]));
}

}  // namespace cohort::shared_threads_test
