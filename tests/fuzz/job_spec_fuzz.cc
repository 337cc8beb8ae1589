// What a client may send as a job: refused with InvalidArgument, or a spec that
// the store gives back as it was and that the planner answers.

#include "common/check.h"
#include "head/placement/placement.h"
#include "head/services/cluster_wire.h"
#include "head/state/job_spec.h"
#include "head/state/waiting_line.h"
#include "head/store/records_codec.h"
#include "tests/fuzz/fuzz.h"

namespace head = cohort::head;
namespace v1 = cohort::v1;

std::vector<std::string> FuzzSeeds() {
  v1::JobSpec spec;
  spec.mutable_launch()->add_command("python3");
  spec.mutable_launch()->add_command("train.py");
  spec.set_name("n");
  auto& scaling = *spec.mutable_scaling();
  scaling.set_num_workers(4);
  scaling.set_placement_strategy(v1::PLACEMENT_STRATEGY_SPREAD);
  auto* amount = scaling.mutable_resources_per_worker()->add_amounts();
  amount->set_name("GPU");
  amount->set_ten_thousandths(5'000);
  spec.mutable_run()->set_max_failures(-1);
  std::vector<std::string> seeds = {spec.SerializeAsString()};
  scaling.set_num_workers(1);
  amount->set_name("CPU");
  (*spec.mutable_launch()->mutable_environment())["A"] = "b";
  spec.mutable_launch()->set_package_hash(std::string(32, 'h'));
  spec.mutable_run()->set_storage_path("/results");
  seeds.push_back(spec.SerializeAsString());
  return seeds;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  v1::JobSpec spec;
  if (!spec.ParseFromArray(data, static_cast<int>(size))) return 0;
  head::FillJobSpec(spec);
  if (const absl::Status valid = head::ValidateJobSpec(spec, "default");
      !valid.ok()) {
    COHORT_CHECK(absl::IsInvalidArgument(valid)) << valid;
    return 0;
  }
  const head::SpecRecord record{.spec = spec};
  const head::Write row = head::ToWrite(record);
  const auto again = head::FromRow<head::SpecRecord>(row.key, *row.value);
  COHORT_CHECK(again.ok()) << again.status();
  COHORT_CHECK(*again == record);
  return 0;
}
