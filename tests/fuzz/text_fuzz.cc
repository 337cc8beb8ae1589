// What people write in flags: each parser refuses or gives what reads back.

#include "common/check.h"
#include "common/duration_text.h"
#include "common/host_port.h"
#include "common/key_values.h"
#include "common/resources.h"
#include "common/size_text.h"
#include "rpc/credential.h"
#include "tests/fuzz/fuzz.h"

using cohort::Amount;
using cohort::HostPort;

std::vector<std::string> FuzzSeeds() {
  return {"90s",
          "1h30m",
          "64GiB",
          "1.5G",
          "512",
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
  return 0;
}
