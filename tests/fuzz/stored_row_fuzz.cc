// A row of the control store under a right checksum: refused as damage, or a
// record that is stored again as it was read.

#include "common/check.h"
#include "common/hash.h"
#include "common/resources.h"
#include "head/store/records_codec.h"
#include "head/testing/job_specs.h"
#include "head/testing/messages.h"
#include "tests/fuzz/fuzz.h"

namespace head = cohort::head;

namespace {

constexpr size_t kChecksumBytes = 4;

// A byte that says how long the key is, the key, the row without its checksum.
std::string Input(const head::Write& write) {
  COHORT_CHECK(write.key.size() < 256 && write.value.has_value());
  return static_cast<char>(write.key.size()) + write.key +
         write.value->substr(kChecksumBytes);
}

std::string WithChecksum(absl::string_view key, absl::string_view row) {
  const uint32_t crc = cohort::Crc32c(row, cohort::Crc32c(key));
  std::string value;
  for (int shift = 24; shift >= 0; shift -= 8) {
    value.push_back(static_cast<char>(crc >> shift));
  }
  value.append(row.data(), row.size());
  return value;
}

template <typename Record>
void Check(absl::string_view key, absl::string_view value) {
  const absl::StatusOr<Record> record = head::FromRow<Record>(key, value);
  if (!record.ok()) return;
  const head::Write again = head::ToWrite(*record);
  COHORT_CHECK(again.key == std::string(key));
  const absl::StatusOr<Record> second =
      head::FromRow<Record>(again.key, *again.value);
  COHORT_CHECK(second.ok());
  COHORT_CHECK(head::ToWrite(*second).value == again.value);
}

template <typename... Records>
void CheckEach(absl::string_view key, absl::string_view value) {
  (Check<Records>(key, value), ...);
}

}  // namespace

std::vector<std::string> FuzzSeeds() {
  head::NodeRecord node;
  node.node.set_name("node-1");
  node.node.set_host("127.0.0.1");
  head::SetResources(node.node,
                     *cohort::ParseResources("CPU=2,GPU=1,license=1"));
  head::AddDevice(node.node, {.id = "0", .kind = "gpu", .model = "m"});
  head::JobRecord job;
  job.row.mutable_origin()->set_principal("cluster");
  head::SetCommand(job.spec.Own(), {"python3", "train.py"});
  (*job.spec.Own().mutable_launch()->mutable_environment())["A"] = "b";
  *job.row.add_checkpoints() = head::CheckpointOf("/x/step-1", 1, 0);
  head::WaitReasonRecord reason;
  reason.set_number(7);
  reason.mutable_reason()->mutable_blocker()->set_shape("2 workers of GPU=1");
  reason.mutable_reason()->mutable_blocker()->add_failures()->set_what("GPU");
  reason.mutable_reason()->mutable_blocker()->add_holders()->set_resource(
      "GPU");
  head::AttemptRecord attempt;
  attempt.number = 1;
  attempt.places = {{.phase = cohort::v1::PLACE_PHASE_RUNNING}};
  head::Process process;
  process.incarnation = 3;
  process.devices = {{"0", cohort::Amount::FromUnits(1)}};
  attempt.processes = {process};
  attempt.orphaned_since = absl::FromUnixSeconds(1'800'000'000);
  return {Input(head::ToWrite(head::NewCluster())),
          Input(head::ToWrite(node)),
          Input(head::ToWrite(job)),
          Input(head::ToWrite(head::AttemptRecord())),
          Input(head::ToWrite(head::RequestRecord())),
          Input(head::ToWrite(head::PackageRecord())),
          Input(head::ToWrite(head::EventRecord())),
          Input(head::ToWrite(head::ArrayRecord())),
          Input(head::ToWrite(head::SpecRecord{job.id, job.spec})),
          Input(head::ToWrite(reason)),
          Input(head::ToWrite(attempt)),
          Input(head::ToWrite(head::ProcessRecord{.process = process}))};
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1 || size - 1 < data[0]) return 0;
  const absl::string_view input(reinterpret_cast<const char*>(data), size);
  const absl::string_view key = input.substr(1, data[0]);
  const std::string value = WithChecksum(key, input.substr(1 + key.size()));
  CheckEach<head::ClusterRecord, head::NodeRecord, head::JobRecord,
            head::AttemptRecord, head::RequestRecord, head::PackageRecord,
            head::EventRecord, head::ArrayRecord, head::WaitReasonRecord,
            head::SpecRecord, head::ProcessRecord>(key, value);
  return 0;
}
