#include "head/services/audit_buffer.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "common/status_util.h"
#include "common/testing/manual_executor.h"

namespace cohort::head {
namespace {

class AuditBufferTest : public ::testing::Test {
 protected:
  void Refuse(const std::string& path, const std::string& peer,
              const rpc::Principal* who) {
    buffer_.Note(buffer_.CallOf(path, peer, who),
                 SetReason(absl::PermissionDeniedError("no"), "role"));
  }
  std::vector<std::string> Taken() {
    std::vector<std::string> taken;
    for (const AuditRecord& call : buffer_.Take()) {
      taken.push_back(absl::StrCat(call.principal(), " ", call.method(), " ",
                                   call.count()));
    }
    return taken;
  }

  using Lines = std::vector<std::string>;
  ManualExecutor time_;
  AuditBuffer buffer_{time_};
  const rpc::Principal rae_ = {.role = rpc::Role::kRead, .name = "user/rae"};
};

TEST_F(AuditBufferTest, SaysWhoWhatWhenceAndWhy) {
  Refuse("/cohort.v1.ClusterService/StopJob", "ipv4:10.0.0.1:5", &rae_);
  const std::vector<AuditRecord> taken = buffer_.Take();
  ASSERT_EQ(taken.size(), 1u);
  EXPECT_EQ(taken[0].principal(), "user/rae");
  EXPECT_EQ(taken[0].role(), v1::ROLE_READ);
  EXPECT_EQ(taken[0].peer(), "ipv4:10.0.0.1");
  EXPECT_EQ(taken[0].method(), "ClusterService/StopJob");
  EXPECT_EQ(taken[0].result(), "PERMISSION_DENIED");
  EXPECT_EQ(taken[0].text(), "role: no");
}

TEST_F(AuditBufferTest, WhatIsToBeTriedAgainWasNotRefused) {
  buffer_.Note(buffer_.CallOf("unknown", "unix:", nullptr),
               absl::UnavailableError("loading"));
  EXPECT_EQ(Taken(), Lines());
}

TEST_F(AuditBufferTest, EqualCallsAreCounted) {
  Refuse("/a", "ipv4:10.0.0.1:5", &rae_);
  EXPECT_EQ(Taken(), Lines{"user/rae /a 1"});
  Refuse("/a", "ipv4:10.0.0.1:6", &rae_);
  Refuse("/a", "ipv4:10.0.0.1:7", &rae_);
  EXPECT_EQ(Taken(), Lines());
  Refuse("/b", "ipv4:10.0.0.1:7", &rae_);
  EXPECT_EQ(Taken(), Lines{"user/rae /b 1"});
  time_.AdvanceBy(AuditBuffer::kPeriod);
  EXPECT_EQ(Taken(), Lines{"user/rae /a 2"});
  time_.AdvanceBy(AuditBuffer::kPeriod);
  EXPECT_EQ(Taken(), Lines());
}

TEST_F(AuditBufferTest, AFloodIsFewRows) {
  Refuse("/a", "ipv4:10.0.0.1:5", &rae_);
  for (int i = 0; i < 1000; ++i) {
    Refuse("/a", absl::StrCat("ipv4:10.0.", i, ".1:1"), nullptr);
  }
  Refuse("/b", "ipv4:10.0.0.1:5", &rae_);
  size_t rows = 0;
  int64_t calls = 0;
  for (int i = 0; i < 2; ++i) {
    for (const AuditRecord& call : buffer_.Take()) {
      ++rows;
      calls += call.count();
    }
    time_.AdvanceBy(AuditBuffer::kPeriod);
  }
  // Of /a and /b, of the first unknown callers, and of the rest.
  EXPECT_EQ(rows, 2 + AuditBuffer::kKindsMax / 3 - 1 + 1);
  EXPECT_EQ(calls, 1002);
}

}  // namespace
}  // namespace cohort::head
