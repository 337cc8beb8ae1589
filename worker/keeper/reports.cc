#include "worker/keeper/reports.h"

#include <limits>

#include "worker/keeper/record.h"

namespace cohort::keeper {
namespace {

constexpr int kVersion = 1;
constexpr int64_t kIntMax = std::numeric_limits<int>::max();
constexpr int64_t kAny = std::numeric_limits<int64_t>::max();
constexpr int kSignalMax = 64;

std::string Cut(const std::string& message) {
  return message.substr(0, kMessageBytesMax);
}

// `value` when the record was whole and had nothing more.
template <typename T>
std::optional<T> Checked(RecordReader& in, const T& value, std::string* error) {
  if (in.AtEnd()) return value;
  *error = in.error();
  return std::nullopt;
}

}  // namespace

std::string StartedFile(int rank) {
  return "rank-" + std::to_string(rank) + ".started";
}

std::string ExitFile(int rank) {
  return "rank-" + std::to_string(rank) + ".exit";
}

std::string Encode(const KeeperReport& report) {
  return RecordWriter(kKeeperKind, kVersion)
      .Add("attempt", report.attempt)
      .Add("pid", report.pid)
      .Add("start_time", report.start_time)
      .Add("boot_id", report.boot_id)
      .Add("cgroup", report.cgroup)
      .Add("cgroup_missing", Cut(report.cgroup_missing))
      .Finish();
}

std::string Encode(const StartedReport& report) {
  return RecordWriter(kStartedKind, kVersion)
      .Add("rank", report.rank)
      .Add("pid", report.pid)
      .Add("start_time", report.start_time)
      .Finish();
}

std::string Encode(const ExitReport& report) {
  return RecordWriter(kExitKind, kVersion)
      .Add("rank", report.rank)
      .Add("cause", static_cast<int64_t>(report.cause))
      .Add("exit_code", report.exit_code)
      .Add("signal", report.signal)
      .Add("oom_killed", report.oom_killed ? 1 : 0)
      .Add("ended_wall_ns", report.ended_wall_ns)
      .Add("ran_ms", report.ran_ms)
      .Add("message", Cut(report.message))
      .Finish();
}

std::string Encode(const DoneReport& report) {
  return RecordWriter(kDoneKind, kVersion).Add("ranks", report.ranks).Finish();
}

std::string Encode(const LogEnd& end) {
  return RecordWriter(kLogEndKind, kVersion)
      .Add("offset", end.offset)
      .Add("dropped_bytes", end.dropped_bytes)
      .Finish();
}

std::string Encode(const StopCommand& command) {
  return RecordWriter(kStopKind, kVersion)
      .Add("grace_ms", command.grace_ms)
      .Finish();
}

std::optional<KeeperReport> ParseKeeper(const std::string& bytes,
                                        std::string* error) {
  RecordReader in(bytes, kKeeperKind, kVersion);
  KeeperReport report;
  report.attempt = in.Text("attempt");
  report.pid = in.Number("pid", 1, kIntMax);
  report.start_time = in.Number("start_time", 0, kAny);
  report.boot_id = in.Text("boot_id");
  report.cgroup = in.Text("cgroup");
  report.cgroup_missing = in.Text("cgroup_missing");
  return Checked(in, report, error);
}

std::optional<StartedReport> ParseStarted(const std::string& bytes,
                                          std::string* error) {
  RecordReader in(bytes, kStartedKind, kVersion);
  StartedReport report;
  report.rank = static_cast<int>(in.Number("rank", 0, kIntMax));
  report.pid = in.Number("pid", 1, kIntMax);
  report.start_time = in.Number("start_time", 0, kAny);
  return Checked(in, report, error);
}

std::optional<ExitReport> ParseExit(const std::string& bytes,
                                    std::string* error) {
  RecordReader in(bytes, kExitKind, kVersion);
  ExitReport report;
  report.rank = static_cast<int>(in.Number("rank", 0, kIntMax));
  report.cause = static_cast<ExitCause>(
      in.Number("cause", 0, static_cast<int64_t>(ExitCause::kKeeperStopped)));
  report.exit_code = static_cast<int>(in.Number("exit_code", -1, 255));
  report.signal = static_cast<int>(in.Number("signal", 0, kSignalMax));
  report.oom_killed = in.Number("oom_killed", 0, 1) == 1;
  report.ended_wall_ns = in.Number("ended_wall_ns", 0, kAny);
  report.ran_ms = in.Number("ran_ms", 0, kAny);
  report.message = in.Text("message");
  if (in.ok() && (report.exit_code >= 0) == (report.signal > 0)) {
    in.Fail("it has to have either an exit code or a signal");
  }
  return Checked(in, report, error);
}

std::optional<DoneReport> ParseDone(const std::string& bytes,
                                    std::string* error) {
  RecordReader in(bytes, kDoneKind, kVersion);
  DoneReport report;
  report.ranks = static_cast<int>(in.Number("ranks", 1, kIntMax));
  return Checked(in, report, error);
}

std::optional<LogEnd> ParseLogEnd(const std::string& bytes,
                                  std::string* error) {
  RecordReader in(bytes, kLogEndKind, kVersion);
  LogEnd end;
  end.offset = in.Number("offset", 0, kAny);
  end.dropped_bytes = in.Number("dropped_bytes", 0, kAny);
  return Checked(in, end, error);
}

std::optional<StopCommand> ParseStop(const std::string& bytes,
                                     std::string* error) {
  RecordReader in(bytes, kStopKind, kVersion);
  StopCommand command;
  command.grace_ms = in.Number("grace_ms", 0, kAny);
  return Checked(in, command, error);
}

}  // namespace cohort::keeper
