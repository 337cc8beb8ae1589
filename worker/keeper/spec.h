#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

// What the worker daemon asks of a keeper: the file `spec` of an attempt's
// directory.  Shared by both sides, so std only.
namespace cohort::keeper {

// Bounds that Validate checks; a spec beyond them is refused, not cut.
inline constexpr int kRanksMax = 1024;
inline constexpr int kCpusMax = 4096;           // numbers are below it
inline constexpr size_t kArgumentsMax = 16384;  // argv or env of one rank
inline constexpr size_t kSpecBytesMax = 64 << 20;

struct RankSpec {
  int rank = 0;  // global rank; names its files; unique within the attempt
  // argv[0] without a slash is looked up in this env's PATH, as a shell does.
  std::vector<std::string> argv;
  // The whole environment as NAME=VALUE.  The keeper adds COHORT_ATTEMPT_ID,
  // COHORT_KEEPER_PLACE and COHORT_KEEPER_RANK (replacing any), by which
  // leftovers are found.
  std::vector<std::string> env;
  std::string cwd;  // absolute
  // CPUs that it may run on, ascending; those that the keeper may not use are
  // passed over.  Empty, or when none is left: as the keeper.
  std::vector<int> cpus;

  bool operator==(const RankSpec&) const = default;
};

struct KeeperSpec {
  std::string attempt;  // lower-case hex, 1 to 64 digits
  std::string
      runtime_dir;      // absolute; private tmpfs; the control socket's home
  std::string log_dir;  // absolute; where log segments go

  // Between SIGTERM and SIGKILL when the keeper itself gets SIGTERM and at the
  // time limit; a Stop command brings its own.
  int64_t grace_ms = 10'000;

  // How long the ranks may run by the keeper's monotonic clock (time that the
  // machine slept is not counted), from their start on; then they get SIGTERM,
  // and SIGKILL after grace_ms.
  std::optional<int64_t> time_limit_ms;

  // A cgroup v2 directory that we may create children in; empty: do without.
  std::string cgroup_parent;

  std::vector<RankSpec> ranks;

  bool operator==(const KeeperSpec&) const = default;
};

// The name of the attempt's cgroup: of this node's part of it.
std::string CgroupName(const KeeperSpec& spec);

// Whether `text` can name an attempt: 1 to 64 lower-case hex digits.
bool IsAttemptId(const std::string& text);

// An empty string when `spec` can be run, else what is wrong with it and where.
std::string Validate(const KeeperSpec& spec);

// The bytes of the file: text, versioned, checksummed (docs/design/0002).
std::string EncodeSpec(const KeeperSpec& spec);

// The spec in `bytes`, validated; nullopt with the reason in *error when they
// are damaged, of a version that this build does not know, or invalid.
std::optional<KeeperSpec> ParseSpec(const std::string& bytes,
                                    std::string* error);

}  // namespace cohort::keeper
