#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "worker/keeper/spec.h"

// What a keeper says: the same records are files in its directory and packets
// on its socket.  And what it can be told.  std only.
namespace cohort::keeper {

// The keeper itself: file `keeper`, and the first packet on every connection.
struct KeeperReport {
  static constexpr char kKind[] = "keeper";

  int64_t pid = 0;
  int64_t start_time = 0;  // clock ticks after boot
  std::string boot_id;
  std::string cgroup;  // directory of its group; empty without one

  bool operator==(const KeeperReport&) const = default;
};

// File `<process>.started`.
struct StartedReport {
  static constexpr char kKind[] = "started";

  ProcessKey process;
  int64_t pid = 0;
  int64_t start_time = 0;

  bool operator==(const StartedReport&) const = default;
};

// What the keeper had done to a process before it ended.  On disk: add, never
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
  // Recorded by the daemon, where the keeper had left no record: it died first
  // (signal is SIGKILL).
  kKeeperLost = 6,
};

// File `<process>.exit`, which becomes `<process>.ended` when nothing of the
// process's tree is left.
struct ExitReport {
  static constexpr char kKind[] = "exit";

  ProcessKey process;
  ExitCause cause = ExitCause::kItself;
  int exit_code = -1;  // -1 when a signal ended it
  int signal = 0;      // 0 when it exited
  bool oom_killed = false;
  int64_t ended_wall_ns = 0;  // since 1970
  int64_t ran_ms = 0;         // by the monotonic clock
  std::string message;        // why it cannot run, or was lost; else empty

  bool operator==(const ExitReport&) const = default;
};

// Nothing of the process's tree is left, its logs are closed.  A packet only.
struct EndedReport {
  static constexpr char kKind[] = "ended";

  ProcessKey process;

  bool operator==(const EndedReport&) const = default;
};

// File `<slot>.<incarnation>.<stream>.end` in the log directory.
struct LogEnd {
  static constexpr char kKind[] = "log_end";

  int64_t offset = 0;
  int64_t dropped_bytes = 0;

  bool operator==(const LogEnd&) const = default;
};

// A packet to the keeper.  What is named and is not there is passed over; each
// may be repeated.
struct Command {
  static constexpr char kKind[] = "command";

  enum class Kind {
    // Reads the specs of the processes and begins all, or none.  Answered.
    kBegin = 0,
    // SIGTERM now and SIGKILL to the trees after grace_ms; with 0 SIGKILL at
    // once.
    kStop = 1,
    // Tells the processes that have ended no more.
    kForget = 2,
    // Ends the keeper as soon as nothing runs.
    kClose = 3,
  };
  Kind kind = Kind::kClose;
  int64_t number = 0;  // of a begin: what its answer has
  int64_t grace_ms = 0;
  std::vector<ProcessKey> processes;

  bool operator==(const Command&) const = default;
};

// To the connection that a begin came from: it comes before any report of the
// processes.
struct Answer {
  static constexpr char kKind[] = "answer";

  int64_t number = 0;
  std::string error;  // empty: all are begun

  bool operator==(const Answer&) const = default;
};

// Names of the files.
std::string SpecFile(const ProcessKey& process);
std::string StartedFile(const ProcessKey& process);
std::string ExitFile(const ProcessKey& process);
std::string EndedFile(const ProcessKey& process);

// No packet is larger; longer messages are cut before they are encoded.
inline constexpr size_t kPacketBytesMax = 16 << 10;
inline constexpr size_t kMessageBytesMax = 4 << 10;
// No command is: kProcessesMax keys of less than 100 bytes.
inline constexpr size_t kCommandBytesMax = 128 << 10;

// The bytes of any of the above.
template <typename Report>
std::string Encode(const Report& report);

// nullopt, with the reason in *error, for anything but what Encode writes.
template <typename Report>
std::optional<Report> Parse(const std::string& bytes, std::string* error);

}  // namespace cohort::keeper
