#pragma once

#include <cstdint>
#include <optional>
#include <string>

// What a keeper says: the same records are files in the attempt's directory and
// packets on its socket.  And what it can be told.  std only.
namespace cohort::keeper {

// The keeper itself: file `keeper`, and the first packet on every connection.
struct KeeperReport {
  std::string attempt;
  int64_t pid = 0;
  int64_t start_time = 0;  // clock ticks after boot
  std::string boot_id;
  std::string cgroup;          // directory of the attempt's group, or empty
  std::string cgroup_missing;  // why there is none

  bool operator==(const KeeperReport&) const = default;
};

// File `rank-<r>.started`.
struct StartedReport {
  int rank = 0;
  int64_t pid = 0;
  int64_t start_time = 0;

  bool operator==(const StartedReport&) const = default;
};

// What the keeper had done to a rank before it ended.  On disk: add, never
// renumber.
enum class ExitCause {
  kItself = 0,     // nothing: it ended by itself
  kStopped = 1,    // Stop's SIGTERM was sent
  kKilled = 2,     // Kill, or Stop's grace had passed
  kCannotRun = 3,  // never ran: exit_code is 127 (no such program) or 126, the
                   // message says why and is on its stderr log too
  kTimeLimit = 4,  // it was alive at the spec's time limit
  // It was alive when its keeper got SIGTERM: from outside, or from a daemon
  // that has no other way to it (Stop of one whose socket is gone).
  kKeeperStopped = 5,
  // Only in the daemon, where there is no record: the keeper died first (signal
  // is SIGKILL).
  kKeeperLost = 6,
};

// File `rank-<r>.exit`.
struct ExitReport {
  int rank = 0;
  ExitCause cause = ExitCause::kItself;
  int exit_code = -1;  // -1 when a signal ended it
  int signal = 0;      // 0 when it exited
  bool oom_killed = false;
  int64_t ended_wall_ns = 0;  // since 1970
  int64_t ran_ms = 0;         // by the monotonic clock
  std::string message;        // why it cannot run; else empty

  bool operator==(const ExitReport&) const = default;
};

// File `done`.
struct DoneReport {
  int ranks = 0;

  bool operator==(const DoneReport&) const = default;
};

// File `<rank>.<stream>.end` in the log directory.
struct LogEnd {
  int64_t offset = 0;
  int64_t dropped_bytes = 0;

  bool operator==(const LogEnd&) const = default;
};

// A packet to the keeper: SIGTERM now and SIGKILL to the trees after grace_ms;
// with 0 SIGKILL at once.
struct StopCommand {
  int64_t grace_ms = 0;

  bool operator==(const StopCommand&) const = default;
};

// Names of the files.
std::string StartedFile(int rank);
std::string ExitFile(int rank);

// Kinds, as RecordKind returns them.
inline constexpr char kKeeperKind[] = "keeper";
inline constexpr char kStartedKind[] = "started";
inline constexpr char kExitKind[] = "exit";
inline constexpr char kDoneKind[] = "done";
inline constexpr char kLogEndKind[] = "log_end";
inline constexpr char kStopKind[] = "stop";

// No packet is larger; longer messages are cut before they are encoded.
inline constexpr size_t kPacketBytesMax = 16 << 10;
inline constexpr size_t kMessageBytesMax = 4 << 10;

std::string Encode(const KeeperReport& report);
std::string Encode(const StartedReport& report);
std::string Encode(const ExitReport& report);
std::string Encode(const DoneReport& report);
std::string Encode(const LogEnd& end);
std::string Encode(const StopCommand& command);

// nullopt, with the reason in *error, for anything but what Encode writes.
std::optional<KeeperReport> ParseKeeper(const std::string& bytes,
                                        std::string* error);
std::optional<StartedReport> ParseStarted(const std::string& bytes,
                                          std::string* error);
std::optional<ExitReport> ParseExit(const std::string& bytes,
                                    std::string* error);
std::optional<DoneReport> ParseDone(const std::string& bytes,
                                    std::string* error);
std::optional<LogEnd> ParseLogEnd(const std::string& bytes, std::string* error);
std::optional<StopCommand> ParseStop(const std::string& bytes,
                                     std::string* error);

}  // namespace cohort::keeper
