#include "worker/device_thread.h"

#include <memory>

#include "gtest/gtest.h"

#include "common/latch.h"
#include "common/thread_pool.h"

namespace cohort::worker {
namespace {

TEST(DeviceThreadTest, AnswersInOrder) {
  ThreadPool pool(1);
  DeviceThread thread(pool);
  auto answered = std::make_shared<Latch>();
  auto order = std::make_shared<std::vector<int>>();
  for (int i = 0; i < 10; ++i) {
    thread.Ask([order, answered, i]() -> Task {
      return [order, answered, i] {
        order->push_back(i);
        if (i == 9) answered->Open();
      };
    });
  }
  answered->Wait();
  EXPECT_EQ(*order, (std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  EXPECT_TRUE(thread.Stop());
}

TEST(DeviceThreadTest, OneThatHangsIsLeftBehindAndItsAnswerDropped) {
  ThreadPool pool(1);
  auto began = std::make_shared<Latch>();
  auto goes_on = std::make_shared<Latch>();
  auto gone = std::make_shared<Latch>();
  auto answered = std::make_shared<bool>(false);
  {
    DeviceThread thread(pool);
    // Opens when the answer was destroyed.
    const std::shared_ptr<void> mark(nullptr, [gone](void*) { gone->Open(); });
    thread.Ask([=]() -> Task {
      began->Open();
      goes_on->Wait();
      return [answered, mark] { *answered = true; };
    });
    thread.Ask([answered]() -> Task {
      *answered = true;
      return [] {};
    });
    began->Wait();
    EXPECT_FALSE(thread.Stop(absl::Milliseconds(1)));
    EXPECT_FALSE(thread.Stop(absl::ZeroDuration()));
  }
  pool.Stop();
  goes_on->Open();
  gone->Wait();
  EXPECT_FALSE(*answered);
}

}  // namespace
}  // namespace cohort::worker
