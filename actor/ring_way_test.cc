#include "actor/ring_way.h"

#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"

#include "cohort/v1/actor.pb.h"
#include "common/random.h"
#include "common/testing/seed.h"
#include "common/testing/status_matchers.h"

namespace cohort::actor {
namespace {

using Way = RingWay<v1::ActorResults>;

// Two ends; `stream_` is what is on its way between them.
class RingWayTest : public ::testing::Test {
 protected:
  RingWayTest() {
    auto made = shm::RingPair::Create();
    auto opened = shm::RingPair::Open((*made)->place());
    writer_ = std::make_unique<Way>(*std::move(made));
    reader_ = std::make_unique<Way>(*std::move(opened));
  }

  static v1::ActorResults Message(uint64_t number) {
    v1::ActorResults message;
    message.add_results()->set_sequence(number);
    return message;
  }
  void SendByStream(uint64_t number) {
    v1::ActorResults message = Message(number);
    message.set_ring_messages(writer_->ForStream());
    stream_.push_back(message);
  }
  bool SendByRing(uint64_t number) {
    return writer_->Push(Message(number).SerializeAsString());
  }
  auto Taker() {
    return [this](v1::ActorResults& message, size_t /*bytes*/) {
      for (const auto& each : message.results()) {
        taken_.push_back(each.sequence());
      }
    };
  }
  void Deliver() {
    v1::ActorResults message = stream_.front();
    stream_.pop_front();
    COHORT_EXPECT_OK(
        reader_->OnStream(message, message.ByteSizeLong(), Taker()));
  }

  std::unique_ptr<Way> writer_;
  std::unique_ptr<Way> reader_;
  std::deque<v1::ActorResults> stream_;
  std::vector<uint64_t> taken_;
};

// RW-1.
TEST_F(RingWayTest, BothWaysAreOneSequence) {
  SeededRandom random(TestSeed());
  uint64_t sent = 0;
  for (int i = 0; i < 20'000; ++i) {
    switch (random.Below(4)) {
      case 0:
        SendByStream(sent++);
        break;
      case 1:
        if (SendByRing(sent)) ++sent;
        break;
      case 2:
        COHORT_EXPECT_OK(reader_->Drain(Taker()));
        break;
      default:
        if (!stream_.empty()) Deliver();
    }
  }
  while (!stream_.empty()) Deliver();
  COHORT_EXPECT_OK(reader_->Drain(Taker()));
  ASSERT_EQ(taken_.size(), sent);
  for (uint64_t i = 0; i < sent; ++i) ASSERT_EQ(taken_[i], i);
}

TEST_F(RingWayTest, OneThreadTakesAtATime) {
  SendByStream(0);
  ASSERT_TRUE(SendByRing(1));
  v1::ActorResults message = stream_.front();
  COHORT_EXPECT_OK(reader_->OnStream(
      message, 8, [this](v1::ActorResults& each, size_t size) {
        if (taken_.empty()) {
          // As another thread would: what it brings is left to this one.
          SendByStream(2);
          v1::ActorResults later = stream_.back();
          COHORT_EXPECT_OK(reader_->OnStream(later, 8, Taker()));
          COHORT_EXPECT_OK(reader_->Drain(Taker()));
        }
        Taker()(each, size);
      }));
  EXPECT_EQ(taken_, (std::vector<uint64_t>{0, 1, 2}));
}

TEST_F(RingWayTest, AMessageThatSpeaksOfOnesThatAreNotThereIsRefused) {
  v1::ActorResults message = Message(0);
  message.set_ring_messages(1);
  EXPECT_THAT(reader_->OnStream(message, 8, Taker()),
              StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_TRUE(taken_.empty());
}

TEST_F(RingWayTest, WhatIsNoMessageIsRefused) {
  ASSERT_TRUE(writer_->Push("\xff\xff\xff"));
  EXPECT_THAT(reader_->Drain(Taker()), StatusIs(absl::StatusCode::kDataLoss));
}

TEST_F(RingWayTest, LargeMessagesAndAFullRingAreTheStreams) {
  EXPECT_FALSE(writer_->Push(std::string(kRingMessageBytesMax + 1, 'x')));
  uint64_t sent = 0;
  while (SendByRing(sent)) ++sent;
  SendByStream(sent);
  Deliver();
  EXPECT_EQ(taken_.size(), sent + 1);
  EXPECT_TRUE(SendByRing(sent));
}

}  // namespace
}  // namespace cohort::actor
