// What passes between daemon and keeper: a record is refused, or is exactly
// what its writer writes.

#include <cstdio>
#include <optional>
#include <string>

#include "common/check.h"
#include "tests/fuzz/fuzz.h"
#include "worker/keeper/record.h"
#include "worker/keeper/reports.h"
#include "worker/keeper/spec.h"

namespace keeper = cohort::keeper;

namespace {

keeper::KeeperSpec Spec() {
  return {.attempt = "0123abcd",
          .runtime_dir = "/run/x",
          .log_dir = "/var/log/x",
          .ranks = {{.rank = 0,
                     .argv = {"python3", "train.py"},
                     .env = {"RANK=0", "A=b\nc"},
                     .cwd = "/"}}};
}

template <typename Report>
void Check(const std::optional<Report>& report, const std::string& bytes) {
  if (report.has_value()) COHORT_CHECK(keeper::Encode(*report) == bytes);
}

// The checksum would stop nearly every mutation at the door.
std::string WithChecksum(std::string bytes) {
  bytes.resize(bytes.rfind("crc32 ") == std::string::npos
                   ? bytes.size()
                   : bytes.rfind("crc32 "));
  char line[16];
  std::snprintf(line, sizeof line, "crc32 %08x\n",
                keeper::Crc32(bytes.data(), bytes.size()));
  return bytes + line;
}

void Read(const std::string& bytes) {
  std::string error;
  if (const auto spec = keeper::ParseSpec(bytes, &error); spec.has_value()) {
    COHORT_CHECK(keeper::EncodeSpec(*spec) == bytes);
  }
  Check(keeper::ParseKeeper(bytes, &error), bytes);
  Check(keeper::ParseStarted(bytes, &error), bytes);
  Check(keeper::ParseExit(bytes, &error), bytes);
  Check(keeper::ParseDone(bytes, &error), bytes);
  Check(keeper::ParseLogEnd(bytes, &error), bytes);
  Check(keeper::ParseStop(bytes, &error), bytes);
}

}  // namespace

std::vector<std::string> FuzzSeeds() {
  return {keeper::EncodeSpec(Spec()),
          keeper::Encode(keeper::KeeperReport{.attempt = "ab", .pid = 7}),
          keeper::Encode(keeper::StartedReport{.rank = 1, .pid = 7}),
          keeper::Encode(keeper::ExitReport{.exit_code = 3, .message = "m"}),
          keeper::Encode(keeper::DoneReport{.ranks = 2}),
          keeper::Encode(keeper::LogEnd{.offset = 9}),
          keeper::Encode(keeper::StopCommand{.grace_ms = 1000})};
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  Read(bytes);
  Read(WithChecksum(bytes));
  return 0;
}
