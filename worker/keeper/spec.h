#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

// What the worker daemon asks of a keeper: the files `<process>.spec` of the
// keeper's directory.  Shared by both sides, so std only.
namespace cohort::keeper {

// Bounds that Validate checks; a spec beyond them is refused, not cut.
inline constexpr int kCpusMax = 4096;           // numbers are below it
inline constexpr size_t kArgumentsMax = 16384;  // of argv, or of env
inline constexpr size_t kSpecBytesMax = 64 << 20;
// What one keeper runs at once: at ten descriptors each, it has enough.
inline constexpr size_t kProcessesMax = 1024;
inline constexpr int kCpuWeightMax = 10'000;  // the kernel's own, as the next
inline constexpr int kCpuWeightOfOneCpu = 100;

// Names a process on its node.  Immutable value.
struct ProcessKey {
  std::string attempt;  // lower-case hex, 1 to 64 digits
  int slot = 0;
  uint64_t incarnation = 0;  // at most 2^63 - 1; begun at most once

  auto operator<=>(const ProcessKey&) const = default;

  // "<attempt>.<slot>.<incarnation>": also names its files.
  std::string ToString() const;
};

// The key that ToString writes as `text`; nullopt for anything else.
std::optional<ProcessKey> ParseProcessKey(const std::string& text);

// The name of the keeper's cgroup, of `place` (its runtime directory, in the
// node's), and of a process's below it.
std::string CgroupName(const std::string& place);
std::string CgroupName(const ProcessKey& process);

struct ProcessSpec {
  // ProcessKey's.
  std::string attempt;
  int slot = 0;
  uint64_t incarnation = 0;

  // argv[0] without a slash is looked up in this env's PATH, as a shell does.
  std::vector<std::string> argv;
  // The whole environment as NAME=VALUE.  The keeper adds COHORT_ATTEMPT_ID,
  // COHORT_KEEPER_PLACE and COHORT_KEEPER_PROCESS (replacing any), by which
  // leftovers are found.
  std::vector<std::string> env;
  std::string cwd;  // absolute
  // CPUs that it may run on, ascending; those that the keeper may not use are
  // passed over.  Empty, or when none is left: as the keeper.
  std::vector<int> cpus;

  // What its cgroup holds it within, if it has one with these controllers.
  // Beyond `memory_bytes` the kernel ends the whole process tree; 0: no bound.
  int64_t memory_bytes = 0;
  // Its share of CPUs that are wanted by more than there are, as cpu.weight;
  // 0: that of one CPU.
  int cpu_weight = 0;

  // Whose rights it has, and no more by any program that it starts
  // (no_new_privs); nobody: the keeper's own, as they are.
  struct User {
    uint32_t uid = 0;
    uint32_t gid = 0;
    std::vector<uint32_t> groups = {};

    bool operator==(const User&) const = default;
  };
  std::optional<User> user;

  // Absolute; where its log segments go.  No two attempts share one.
  std::string log_dir;

  // Between SIGTERM and SIGKILL when the keeper itself gets SIGTERM and at the
  // time limit; a stop command brings its own.
  int64_t grace_ms = 10'000;

  // How long it may run by the keeper's monotonic clock (time that the machine
  // slept is not counted); then it gets SIGTERM, and SIGKILL after grace_ms.
  std::optional<int64_t> time_limit_ms;

  bool operator==(const ProcessSpec&) const = default;

  ProcessKey key() const { return {attempt, slot, incarnation}; }
};

// Whether `text` can name an attempt: 1 to 64 lower-case hex digits.
bool IsAttemptId(const std::string& text);
// Whether `text` can name a keeper and its files: 1 to 64 lower-case letters,
// digits and dashes.
bool IsKeeperId(const std::string& text);

// An empty string when `spec` can be run, else what is wrong with it.
std::string Validate(const ProcessSpec& spec);

// The bytes of the file: text, versioned, checksummed (docs/design/0002).
std::string EncodeSpec(const ProcessSpec& spec);

// The spec in `bytes`, validated; nullopt with the reason in *error when they
// are damaged, of a version that this build does not know, or invalid.
std::optional<ProcessSpec> ParseSpec(const std::string& bytes,
                                     std::string* error);

}  // namespace cohort::keeper
