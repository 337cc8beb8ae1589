#include "rpc/fifo.h"

#include <deque>

#include "gtest/gtest.h"

#include "common/random.h"
#include "common/testing/seed.h"

namespace cohort::rpc {
namespace {

TEST(FifoTest, GivesWhatADequeGives) {
  SeededRandom random(TestSeed());
  Fifo<int> fifo;
  std::deque<int> model;
  for (int i = 0; i < 20'000; ++i) {
    // Grows for a while, then shrinks.
    const bool grows = i / 1'000 % 2 == 0;
    if (random.Below(10) < (grows ? 6 : 4)) {
      fifo.Push(i);
      model.push_back(i);
    } else if (!model.empty()) {
      EXPECT_EQ(fifo.Pop(), model.front());
      model.pop_front();
    }
    if (random.Below(1'500) == 0) {
      fifo.Clear();
      model.clear();
    }
    ASSERT_EQ(fifo.size(), model.size());
    ASSERT_EQ(fifo.empty(), model.empty());
  }
}

}  // namespace
}  // namespace cohort::rpc
