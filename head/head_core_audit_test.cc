// The audit log: who changed what, and who was refused (docs/security.md).

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"

#include "common/check.h"
#include "common/job_id.h"
#include "head/testing/head_core_fixture.h"

namespace cohort::head {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class HeadCoreAuditTest : public HeadCoreTest {
 protected:
  rpc::Credential User(const std::string& name, v1::Role role) {
    v1::CreateTokenRequest request;
    request.set_token_id(random_.Bytes(rpc::Credential::kTokenIdBytes));
    request.set_role(role);
    request.set_name(name);
    const auto made = Call(rpc::kCreateToken, request);
    COHORT_CHECK(made.ok()) << made.status();
    return *rpc::Credential::FromBytes(made->secret());
  }
  std::vector<AuditRecord> Log(const std::string& principal) {
    v1::ListAuditRequest request;
    request.set_principal(principal);
    const auto page = Call(rpc::kListAudit, request);
    COHORT_CHECK(page.ok()) << page.status();
    return {page->entries().begin(), page->entries().end()};
  }
  std::vector<std::string> Lines(const std::string& principal) {
    std::vector<std::string> lines;
    for (const AuditRecord& call : Log(principal)) {
      lines.push_back(absl::StrCat(
          call.method(), " ", call.result(), call.count() > 1 ? " x" : "",
          call.count() > 1 ? absl::StrCat(call.count()) : std::string()));
    }
    return lines;
  }
  absl::Status Stop(const std::string& job, const rpc::Credential& as) {
    v1::StopJobRequest request;
    request.set_request_id(absl::StrCat("stop-", ++stops_));
    request.set_job_id(job);
    return Call(rpc::kStopJob, request, absl::Seconds(5), as).status();
  }

  int stops_ = 0;
};

TEST_F(HeadCoreAuditTest, SaysWhoChangedWhat) {
  const rpc::Credential ann = User("ann", v1::ROLE_SUBMIT);
  const auto job =
      Call(rpc::kSubmitJob, Submission("train", 1), absl::Seconds(5), ann);
  COHORT_ASSERT_OK(job);
  COHORT_ASSERT_OK(Stop(job->job_id(), ann));
  // Questions are not in it.
  COHORT_ASSERT_OK(
      Call(rpc::kListJobs, v1::ListJobsRequest(), absl::Seconds(5), ann));
  const std::vector<AuditRecord> log = Log("ann");
  ASSERT_EQ(log.size(), 2u);
  EXPECT_EQ(log[0].principal(), "user/ann");
  EXPECT_EQ(log[0].role(), v1::ROLE_SUBMIT);
  EXPECT_NE(log[0].peer(), "");
  EXPECT_EQ(log[0].method(), "ClusterService/SubmitJob");
  EXPECT_EQ(log[0].job_id(), job->job_id());
  EXPECT_EQ(log[0].what(), "name=job");
  EXPECT_EQ(log[0].result(), "OK");
  EXPECT_EQ(log[1].method(), "ClusterService/StopJob");
  EXPECT_EQ(log[1].job_id(), job->job_id());
  EXPECT_THAT(Lines("cluster"), ElementsAre("SecurityService/CreateToken OK"));
  EXPECT_THAT(Lines("nn"), IsEmpty());
  // For admins alone.
  EXPECT_THAT(
      Call(rpc::kListAudit, v1::ListAuditRequest(), absl::Seconds(5), ann),
      StatusIs(absl::StatusCode::kPermissionDenied));
}

TEST_F(HeadCoreAuditTest, OutlivesTheHead) {
  const rpc::Credential ann = User("ann", v1::ROLE_SUBMIT);
  COHORT_ASSERT_OK(
      Call(rpc::kSubmitJob, Submission("a", 1), absl::Seconds(5), ann));
  Crash();
  Start();
  EXPECT_THAT(Lines("ann"), ElementsAre("ClusterService/SubmitJob OK"));
  COHORT_ASSERT_OK(
      Call(rpc::kSubmitJob, Submission("b", 1), absl::Seconds(5), ann));
  const std::vector<AuditRecord> log = Log("");
  ASSERT_EQ(log.size(), 3u);
  for (size_t i = 0; i < log.size(); ++i) EXPECT_EQ(log[i].number(), i + 1);
}

TEST_F(HeadCoreAuditTest, RefusedCallsAreCountedAndWriteNothing) {
  const rpc::Credential ann = User("ann", v1::ROLE_SUBMIT);
  const std::string none(16, 'n');
  EXPECT_FALSE(Stop(none, ann).ok());
  Run();
  EXPECT_THAT(Lines("ann"), ElementsAre("ClusterService/StopJob NOT_FOUND"));
  Run();
  const uint64_t written = core_->commit_counters().rows;
  for (int i = 0; i < 20; ++i) EXPECT_FALSE(Stop(none, ann).ok());
  // But for the row of the cluster, by which the disk is probed.
  EXPECT_LE(core_->commit_counters().rows, written + 1);
  Run(AuditBuffer::kPeriod);
  EXPECT_THAT(Lines("ann"),
              ElementsAre("ClusterService/StopJob NOT_FOUND",
                          "ClusterService/StopJob NOT_FOUND x20"));
}

TEST_F(HeadCoreAuditTest, TheOldestCallsGoFirst) {
  options_.limits.history.audit.count_max = 5;
  Crash();
  Start();
  const rpc::Credential ann = User("ann", v1::ROLE_SUBMIT);
  for (int i = 0; i < 8; ++i) {
    v1::SubmitJobRequest request = Submission(absl::StrCat(i), 1);
    request.mutable_spec()->set_name(absl::StrCat("job-", i));
    COHORT_ASSERT_OK(Call(rpc::kSubmitJob, request, absl::Seconds(5), ann));
  }
  const std::vector<AuditRecord> log = Log("");
  ASSERT_EQ(log.size(), 5u);
  EXPECT_EQ(log.front().what(), "name=job-3");
  EXPECT_EQ(log.back().what(), "name=job-7");
}

TEST_F(HeadCoreAuditTest, ACallThatChangesNothingIsInIt) {
  const rpc::Credential ann = User("ann", v1::ROLE_SUBMIT);
  const v1::SubmitJobRequest request = Submission("train", 1);
  for (int i = 0; i < 2; ++i) {
    COHORT_ASSERT_OK(Call(rpc::kSubmitJob, request, absl::Seconds(5), ann));
  }
  Run();
  EXPECT_THAT(Lines("ann"), ElementsAre("ClusterService/SubmitJob OK",
                                        "ClusterService/SubmitJob OK"));
}

}  // namespace
}  // namespace cohort::head
