// What people write in flags: each parser refuses or gives what reads back.

#include <string>

#include "absl/strings/str_join.h"

#include "common/array_spec.h"
#include "common/check.h"
#include "common/duration_text.h"
#include "common/host_port.h"
#include "common/job_id.h"
#include "common/key_values.h"
#include "common/resources.h"
#include "common/since_text.h"
#include "common/size_text.h"
#include "rpc/credential.h"
#include "rpc/join_token.h"
#include "tests/fuzz/fuzz.h"

using cohort::Amount;
using cohort::HostPort;

namespace {

// An array is what its own elements, named one by one, are.
void ReadArray(absl::string_view text) {
  const auto spec = cohort::ArraySpec::Parse(text);
  if (!spec.ok()) {
    COHORT_CHECK(absl::IsInvalidArgument(spec.status())) << spec.status();
    return;
  }
  COHORT_CHECK(!spec->indices.empty());
  COHORT_CHECK(spec->indices.size() <= cohort::ArraySpec::kElementsMax);
  COHORT_CHECK(!spec->at_once.has_value() || *spec->at_once > 0);
  if (spec->indices.size() > 1'000) return;
  std::string again = absl::StrJoin(spec->indices, ",");
  if (spec->at_once.has_value()) again += "%" + std::to_string(*spec->at_once);
  const auto same = cohort::ArraySpec::Parse(again);
  COHORT_CHECK(same.ok() && *same == *spec) << again;
}

void ReadTimes(absl::string_view text) {
  const absl::Time now = absl::FromUnixSeconds(1'800'000'000);
  if (const auto since = cohort::ParseSince(text, now); since.ok()) {
    COHORT_CHECK(*since <= absl::InfiniteFuture());
  } else {
    COHORT_CHECK(absl::IsInvalidArgument(since.status())) << since.status();
  }
}

}  // namespace

std::vector<std::string> FuzzSeeds() {
  return {"90s",
          "1h30m",
          "64GiB",
          "1.5G",
          "512",
          "0-99:10%8",
          "0,3,7-9",
          "2026-11-22T10:00:00Z",
          "00112233445566778899aabbccddeeff.7",
          "k=v,k2=v2",
          "127.0.0.1:7710",
          "[::1]:0",
          "CPU=2,GPU=0.5,memory=64GiB,license=1",
          std::string(64, 'a')};
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto duration = cohort::ParseDuration(text); duration.ok()) {
    COHORT_CHECK(cohort::ParseDuration(cohort::DurationToText(*duration)).ok());
  }
  ReadArray(text);
  ReadTimes(text);
  if (const auto job = cohort::JobId::FromText(text); job.ok()) {
    const auto again = cohort::JobId::FromText(job->ToText());
    COHORT_CHECK(again.ok() && *again == *job) << job->ToText();
  }
  if (const auto bytes = cohort::ParseSize(text); bytes.ok()) {
    COHORT_CHECK(*bytes >= 0);
  }
  if (const auto address = cohort::ParseHostPort(text); address.ok()) {
    const auto again = cohort::ParseHostPort(address->ToString());
    COHORT_CHECK(again.ok() && *again == *address);
  }
  if (const auto amount = Amount::Parse(text); amount.ok()) {
    const auto again = Amount::Parse(amount->ToString());
    COHORT_CHECK(again.ok() && *again == *amount);
  }
  if (const auto resources = cohort::ParseResources(text); resources.ok()) {
    COHORT_CHECK(resources->Validate().ok());
  }
  (void)cohort::ParseKeyValues(text);
  if (const auto secret = cohort::rpc::Credential::FromHex(text); secret.ok()) {
    COHORT_CHECK(cohort::rpc::Credential::FromHex(secret->ToHex()).ok());
  }
  if (const auto token = cohort::rpc::JoinToken::Parse(text); token.ok()) {
    COHORT_CHECK(cohort::rpc::JoinToken::Parse(token->ToText()).ok());
  }
  return 0;
}
