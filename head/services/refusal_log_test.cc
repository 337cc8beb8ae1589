#include "head/services/refusal_log.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "common/status_util.h"
#include "common/testing/manual_executor.h"

namespace cohort::head {
namespace {

class RefusalLogTest : public ::testing::Test {
 protected:
  std::string Note(const std::string& path, const std::string& peer,
                   const rpc::Principal* who) {
    const auto noted = log_.Note(
        path, peer, who, SetReason(absl::PermissionDeniedError("x"), "role"));
    return noted.has_value() ? noted->text : "";
  }

  ManualExecutor time_;
  RefusalLog log_{time_};
  const rpc::Principal rae_ = {.role = rpc::Role::kRead, .name = "user/rae"};
};

TEST_F(RefusalLogTest, SaysWhoWhatAndWhence) {
  EXPECT_EQ(Note("/cohort.v1.ClusterService/StopJob", "ipv4:10.0.0.1:5", &rae_),
            "ClusterService/StopJob by user/rae, role read, from "
            "ipv4:10.0.0.1: PERMISSION_DENIED (role)");
  EXPECT_EQ(Note("unknown", "ipv4:10.0.0.1:5", nullptr),
            "unknown by nobody, from ipv4:10.0.0.1: PERMISSION_DENIED (role)");
  EXPECT_FALSE(
      log_.Note("unknown", "unix:", nullptr, absl::UnavailableError("loading"))
          .has_value());
}

TEST_F(RefusalLogTest, AFloodIsFewEvents) {
  EXPECT_NE(Note("/a", "ipv4:10.0.0.1:5", &rae_), "");
  EXPECT_EQ(Note("/a", "ipv4:10.0.0.1:6", &rae_), "");
  EXPECT_NE(Note("/b", "ipv4:10.0.0.1:6", &rae_), "");
  int events = 0;
  for (int i = 0; i < 1000; ++i) {
    if (!Note("/a", absl::StrCat("ipv4:10.0.1.", i, ":1"), nullptr).empty()) {
      ++events;
    }
  }
  EXPECT_EQ(events, 58);
  time_.AdvanceBy(absl::Minutes(1));
  EXPECT_NE(Note("/a", "ipv4:10.0.0.1:5", &rae_), "");
}

}  // namespace
}  // namespace cohort::head
