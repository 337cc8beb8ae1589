#include "rpc/methods.h"

#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "gmock/gmock.h"
#include "google/protobuf/descriptor.h"
#include "gtest/gtest.h"

#include "common/file.h"
#include "common/testing/status_matchers.h"

namespace cohort::rpc {
namespace {

using ::testing::HasSubstr;

const google::protobuf::MethodDescriptor* Describe(const char* path) {
  const std::string name =
      absl::StrReplaceAll(absl::StripPrefix(path, "/"), {{"/", "."}});
  return google::protobuf::DescriptorPool::generated_pool()->FindMethodByName(
      name);
}

struct CheckedMethod {
  Roles roles;
  bool is_audited;
};

// By full name.
std::map<std::string, CheckedMethod>& Checked() {
  static std::map<std::string, CheckedMethod> checked;
  return checked;
}

// A line for each of them, as docs/security.md has it.
std::string Matrix() {
  std::string text = "| method |";
  std::string rule = "|---|";
  for (const Role role : kAllRoles) {
    absl::StrAppend(&text, " ", RoleName(role), " |");
    absl::StrAppend(&rule, "---|");
  }
  absl::StrAppend(&text, " audited |\n", rule, "---|\n");
  for (const auto& [name, method] : Checked()) {
    absl::StrAppend(&text, "| ", absl::StripPrefix(name, "cohort.v1."), " |");
    for (const Role role : kAllRoles) {
      absl::StrAppend(&text, method.roles.Has(role) ? " yes |" : " |");
    }
    absl::StrAppend(&text, method.is_audited ? " yes |\n" : " |\n");
  }
  return text;
}

template <typename Up, typename Down>
void Check(const char* path, CheckedMethod as, bool streams) {
  SCOPED_TRACE(path);
  const auto* method = Describe(path);
  ASSERT_NE(method, nullptr) << "no such method in proto/";
  EXPECT_EQ(method->input_type(), Up::descriptor());
  EXPECT_EQ(method->output_type(), Down::descriptor());
  EXPECT_EQ(method->client_streaming(), streams);
  EXPECT_EQ(method->server_streaming(), streams);
  Checked().emplace(method->full_name(), as);
}

template <typename Req, typename Resp>
void Check(const UnaryMethod<Req, Resp>& method) {
  Check<Req, Resp>(method.path, {method.roles, method.IsAudited()}, false);
}
template <typename Up, typename Down>
void Check(const StreamMethod<Up, Down>& method) {
  Check<Up, Down>(method.path, {method.roles, false}, true);
}

TEST(MethodsTest, AreExactlyTheMethodsOfTheProtos) {
  Check(kDrive);
  Check(kListDrivers);
  Check(kCallActor);
  Check(kApplyClusterFile);
  Check(kRequestCapacity);
  Check(kWithdrawCapacity);
  Check(kGetAutoscaler);
  Check(kSubmitJob);
  Check(kStopJob);
  Check(kGetJob);
  Check(kHoldJob);
  Check(kReleaseJob);
  Check(kRemoveJob);
  Check(kResizeJob);
  Check(kListJobs);
  Check(kListNodes);
  Check(kGetNode);
  Check(kDrainNode);
  Check(kUndrainNode);
  Check(kBackupStore);
  Check(kExplainJob);
  Check(kListEvents);
  Check(kGetResources);
  Check(kGetStatus);
  Check(kWaitJob);
  Check(kReadLog);
  Check(kReadRunFile);
  Check(kGetStack);
  Check(kGetServedCalls);
  Check(kBeginPackage);
  Check(kUploadPackage);
  Check(kFinishPackage);
  Check(kFetchPackage);
  Check(kBackupStore);
  Check(kAdoptAttempt);
  Check(kEndAttempt);
  Check(kConnect);
  Check(kCreateToken);
  Check(kListTokens);
  Check(kRevokeToken);
  Check(kListAudit);
  Check(kListAuthorities);
  Check(kRotateAuthority);
  Check(kFinishRotation);
  Check(kJoin);
  Check(kSendLog);
  Check(kWatchRun);
  Check(kExchange);
  Check(kCommitCheckpoint);
  Check(kReportPreflight);
  Check(kReportGpuEnd);
  for (const auto* file : {v1::DriverMessage::descriptor()->file(),
                           v1::SubmitJobRequest::descriptor()->file(),
                           v1::WorkerMessage::descriptor()->file(),
                           v1::WatchRequest::descriptor()->file(),
                           v1::JoinRequest::descriptor()->file()}) {
    for (int s = 0; s < file->service_count(); ++s) {
      for (int m = 0; m < file->service(s)->method_count(); ++m) {
        const std::string& name = file->service(s)->method(m)->full_name();
        EXPECT_EQ(Checked().count(name), 1u) << name << " has no constant";
      }
    }
  }
  const auto page = ReadFile(COHORT_SECURITY_PAGE);
  COHORT_ASSERT_OK(page);
  EXPECT_THAT(*page, HasSubstr(Matrix())) << "put this table there";
}

}  // namespace
}  // namespace cohort::rpc
