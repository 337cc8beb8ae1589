#include "head/archive/record_text.h"

#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/status_matchers.h"
#include "head/store/records_codec.h"
#include "head/testing/job_specs.h"
#include "head/testing/messages.h"

namespace cohort::head {
namespace {

template <typename Record>
std::string TextOf(const Record& record, RecordForm form) {
  const Write write = ToWrite(record);
  return RecordText(write.table, write.key, *write.value, form).value_or("");
}

SpecRecord SomeSpec() {
  JobSpec spec = OneWorker();
  SetCommand(spec, {"sh", "-c", "echo \"hi\"\n"});
  (*spec.mutable_launch()->mutable_environment())["A"] = "1";
  SetResource(spec, "CPU", Amount::FromTenThousandths(5000));
  spec.mutable_launch()->set_package_hash(std::string(2, '\xff'));
  return {.id = *JobId::FromBytes(std::string(16, 'j')),
          .spec = std::move(spec)};
}

JobRecord SomeJob() {
  JobRecord job(*JobId::FromBytes(std::string(16, 'j')));
  job.row.mutable_origin()->set_namespace_("default");
  job.row.set_state(v1::JOB_STATE_RUNNING);
  job.row.set_submitted_at_us(1);
  job.row.set_stderr_tail(std::string("bad \xff\0", 6));
  *job.row.mutable_exit() = ExitOf({.code = 3});
  return job;
}

TEST(RecordTextTest, TextHasALineAField) {
  EXPECT_EQ(TextOf(SomeJob(), RecordForm::kText),
            R"(jobs 6a6a6a6a6a6a6a6a6a6a6a6a6a6a6a6a
  job_id: 6a6a6a6a6a6a6a6a6a6a6a6a6a6a6a6a
  origin:
    namespace: default
  state: RUNNING
  exit:
    code: 3
  failed_rank: -1
  submitted_at_us: 1970-01-01T00:00:00.000001Z
  stderr_tail: bad \xff\x00
)");
  EXPECT_EQ(TextOf(SomeSpec(), RecordForm::kText),
            R"(specs 6a6a6a6a6a6a6a6a6a6a6a6a6a6a6a6a
  job_id: 6a6a6a6a6a6a6a6a6a6a6a6a6a6a6a6a
  spec:
    launch:
      command: sh
      command: -c
      command: echo \"hi\"\n
      environment: A=1
      package_hash: ffff
    scaling:
      num_workers: 1
      resources_per_worker: CPU=0.5
      placement_strategy: PACK
    run:
      max_failures: 0
      retry_delay_us: 1s
      grace_us: 10s
      restart: ALL
)");
}

TEST(RecordTextTest, JsonIsOneLine) {
  EventRecord event;
  event.set_number(258);
  *event.mutable_at() = rpc::ToWire(absl::FromUnixMicros(2));
  event.set_kind("a\"b");
  event.set_namespace_("default");
  event.set_text("line\n");
  EXPECT_EQ(TextOf(event, RecordForm::kJson),
            R"({"table":"events","key":"0000000000000102","record":{)"
            R"("number":258,"at":"1970-01-01T00:00:00.000002Z",)"
            R"("kind":"a\"b","namespace":"default","text":"line\\n"}})"
            "\n");
}

TEST(RecordTextTest, PhasesHaveWordsAndTimes) {
  JobRecord job = SomeJob();
  JobPhase& phase = *job.row.add_phases();
  phase.set_kind(v1::WAIT_KIND_BACK_OFF);
  phase.set_since_us(2);
  EXPECT_NE(TextOf(job, RecordForm::kText)
                .find("  phases:\n"
                      "    kind: BACK_OFF\n"
                      "    since_us: 1970-01-01T00:00:00.000002Z\n"),
            std::string::npos);
}

TEST(RecordTextTest, EveryTableHasText) {
  for (const RecordForm form : {RecordForm::kText, RecordForm::kJson}) {
    EXPECT_NE(TextOf(NewCluster(), form), "");
    EXPECT_NE(TextOf(NodeRecord(), form), "");
    EXPECT_NE(TextOf(AttemptRecord(), form), "");
    EXPECT_NE(TextOf(RequestRecord(), form), "");
    EXPECT_NE(TextOf(PackageRecord(), form), "");
  }
}

TEST(RecordTextTest, DamageIsDataLoss) {
  Write write = ToWrite(SomeJob());
  write.value->back() ^= 1;
  EXPECT_THAT(
      RecordText(write.table, write.key, *write.value, RecordForm::kText),
      StatusIs(absl::StatusCode::kDataLoss));
}

}  // namespace
}  // namespace cohort::head
