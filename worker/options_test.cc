#include "worker/options.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/status_matchers.h"

namespace cohort::worker {
namespace {

using testing::HasSubstr;

WorkerOptions Sound() {
  WorkerOptions options;
  options.head = {.host = "h", .port = 1};
  options.credential_file = "c";
  return options;
}

void ExpectRefused(const WorkerOptions& options, const char* flag) {
  EXPECT_THAT(options.Validate(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(flag)));
}

TEST(WorkerOptions, TakeWhatPeopleAndNamesLookLike) {
  WorkerOptions options = Sound();
  options.name = "K\xc3\xb6ln, rack 7";
  options.labels = {{"rack", "a b"}};
  for (const char* host : {"", "node-7.rack", "10.0.0.7", "fe80::1"}) {
    options.host = host;
    COHORT_EXPECT_OK(options.Validate());
  }
}

TEST(WorkerOptions, RefuseTextThatCannotBeShown) {
  for (const char* text : {"a\nb", "\x1b[31m", "\xff"}) {
    WorkerOptions named = Sound();
    named.name = text;
    ExpectRefused(named, "--name");
    WorkerOptions labelled = Sound();
    labelled.labels = {{"rack", text}};
    ExpectRefused(labelled, "--labels");
    labelled.labels = {{text, "a"}};
    ExpectRefused(labelled, "--labels");
  }
}

TEST(WorkerOptions, RefuseALabelThatEveryNodeHas) {
  WorkerOptions options = Sound();
  options.labels = {{"host", "x"}};
  ExpectRefused(options, "--labels: the label \"host=x\" cannot be given");
}

TEST(WorkerOptions, RefuseAHostThatIsNone) {
  for (const char* host : {"a b", "a\n", "node:7710", "[::1]", "-\xff"}) {
    WorkerOptions options = Sound();
    options.host = host;
    ExpectRefused(options, "--host");
  }
}

}  // namespace
}  // namespace cohort::worker
