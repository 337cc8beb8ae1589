#include "worker/preflight_words.h"

#include <string>

#include "gtest/gtest.h"

namespace cohort::worker {
namespace {

v1::PreflightReport Report(v1::PreflightVerdict verdict, std::string summary,
                           std::string json = "") {
  v1::PreflightReport report;
  report.set_verdict(verdict);
  report.set_summary(std::move(summary));
  report.set_json(std::move(json));
  return report;
}

class PreflightWordsTest : public ::testing::Test {
 protected:
  PreflightWordsTest() {
    for (int rank : {0, 1}) place_.add_processes()->set_slot(rank);
  }

  void Take(int rank, const v1::PreflightReport& report) {
    TakePreflight(report, *place_.mutable_processes(rank), place_);
  }
  void End(int rank, int code, int signal = 0) {
    v1::ObservedProcess& ended = *place_.mutable_processes(rank);
    ended.mutable_exit()->set_code(code);
    ended.mutable_exit()->set_signal(signal);
    NoteEndInPreflight(ended, place_);
  }

  v1::ObservedPlace place_;
};

TEST_F(PreflightWordsTest, TheReportIsRankZeros) {
  Take(1, Report(v1::PREFLIGHT_VERDICT_PASSED, "of 1"));
  EXPECT_TRUE(place_.processes(1).through_preflight());
  EXPECT_FALSE(place_.has_preflight());
  Take(0, Report(v1::PREFLIGHT_VERDICT_SLOW, "of 0", "{}"));
  EXPECT_EQ(place_.preflight().summary(), "of 0");
  EXPECT_EQ(place_.preflight().json(), "{}");
}

TEST_F(PreflightWordsTest, TheFirstFailureStays) {
  Take(1, Report(v1::PREFLIGHT_VERDICT_FAILED, "of 1"));
  EXPECT_FALSE(place_.processes(1).through_preflight());
  Take(0, Report(v1::PREFLIGHT_VERDICT_FAILED, "of 0", "{}"));
  EXPECT_EQ(place_.preflight().summary(), "of 1");
  EXPECT_EQ(place_.preflight().json(), "{}");
  End(1, 1);
  EXPECT_EQ(place_.preflight().summary(), "of 1");
}

TEST_F(PreflightWordsTest, AFailureIsMoreThanAPassBefore) {
  Take(0, Report(v1::PREFLIGHT_VERDICT_PASSED, "of 0", "{}"));
  Take(1, Report(v1::PREFLIGHT_VERDICT_FAILED, "of 1"));
  EXPECT_EQ(place_.preflight().verdict(), v1::PREFLIGHT_VERDICT_FAILED);
}

TEST_F(PreflightWordsTest, WhoEndsWithoutAWordFailedInIt) {
  End(1, 0, 9);
  EXPECT_EQ(place_.preflight().verdict(), v1::PREFLIGHT_VERDICT_FAILED);
  EXPECT_EQ(place_.preflight().summary(),
            "rank 1 was killed by signal 9 in it");
}

TEST_F(PreflightWordsTest, WhoCameThroughFailsByItsCommand) {
  Take(1, Report(v1::PREFLIGHT_VERDICT_PASSED, ""));
  End(1, 3);
  EXPECT_FALSE(place_.has_preflight());
}

}  // namespace
}  // namespace cohort::worker
