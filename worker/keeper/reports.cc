#include "worker/keeper/reports.h"

#include <limits>

#include "worker/keeper/record.h"

namespace cohort::keeper {
namespace {

constexpr int kVersion = 1;
constexpr int64_t kIntMax = std::numeric_limits<int>::max();
constexpr int64_t kAny = std::numeric_limits<int64_t>::max();
constexpr int kSignalMax = 64;

ProcessKey ReadKey(RecordReader& in) {
  const std::optional<ProcessKey> key = ParseProcessKey(in.Text("process"));
  if (!key) in.Fail("field \"process\" is not ATTEMPT.SLOT.INCARNATION");
  return key.value_or(ProcessKey());
}

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

std::string SpecFile(const ProcessKey& process) {
  return process.ToString() + ".spec";
}

std::string StartedFile(const ProcessKey& process) {
  return process.ToString() + ".started";
}

std::string ExitFile(const ProcessKey& process) {
  return process.ToString() + ".exit";
}

std::string EndedFile(const ProcessKey& process) {
  return process.ToString() + ".ended";
}

std::string Encode(const KeeperReport& report) {
  return RecordWriter(kKeeperKind, kVersion)
      .Add("pid", report.pid)
      .Add("start_time", report.start_time)
      .Add("boot_id", report.boot_id)
      .Add("cgroup", report.cgroup)
      .Add("cgroup_missing", Cut(report.cgroup_missing))
      .Finish();
}

std::string Encode(const StartedReport& report) {
  return RecordWriter(kStartedKind, kVersion)
      .Add("process", report.process.ToString())
      .Add("pid", report.pid)
      .Add("start_time", report.start_time)
      .Finish();
}

std::string Encode(const ExitReport& report) {
  return RecordWriter(kExitKind, kVersion)
      .Add("process", report.process.ToString())
      .Add("cause", static_cast<int64_t>(report.cause))
      .Add("exit_code", report.exit_code)
      .Add("signal", report.signal)
      .Add("oom_killed", report.oom_killed ? 1 : 0)
      .Add("ended_wall_ns", report.ended_wall_ns)
      .Add("ran_ms", report.ran_ms)
      .Add("message", Cut(report.message))
      .Finish();
}

std::string Encode(const EndedReport& report) {
  return RecordWriter(kEndedKind, kVersion)
      .Add("process", report.process.ToString())
      .Finish();
}

std::string Encode(const LogEnd& end) {
  return RecordWriter(kLogEndKind, kVersion)
      .Add("offset", end.offset)
      .Add("dropped_bytes", end.dropped_bytes)
      .Finish();
}

std::string Encode(const Command& command) {
  RecordWriter out(kCommandKind, kVersion);
  out.Add("kind", static_cast<int64_t>(command.kind))
      .Add("number", command.number)
      .Add("grace_ms", command.grace_ms);
  for (const ProcessKey& process : command.processes) {
    out.Add("process", process.ToString());
  }
  return out.Finish();
}

std::string Encode(const Answer& answer) {
  return RecordWriter(kAnswerKind, kVersion)
      .Add("number", answer.number)
      .Add("error", Cut(answer.error))
      .Finish();
}

std::optional<KeeperReport> ParseKeeper(const std::string& bytes,
                                        std::string* error) {
  RecordReader in(bytes, kKeeperKind, kVersion);
  KeeperReport report;
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
  report.process = ReadKey(in);
  report.pid = in.Number("pid", 1, kIntMax);
  report.start_time = in.Number("start_time", 0, kAny);
  return Checked(in, report, error);
}

std::optional<ExitReport> ParseExit(const std::string& bytes,
                                    std::string* error) {
  RecordReader in(bytes, kExitKind, kVersion);
  ExitReport report;
  report.process = ReadKey(in);
  report.cause = static_cast<ExitCause>(
      in.Number("cause", 0, static_cast<int64_t>(ExitCause::kKeeperLost)));
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

std::optional<EndedReport> ParseEnded(const std::string& bytes,
                                      std::string* error) {
  RecordReader in(bytes, kEndedKind, kVersion);
  EndedReport report;
  report.process = ReadKey(in);
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

std::optional<Command> ParseCommand(const std::string& bytes,
                                    std::string* error) {
  RecordReader in(bytes, kCommandKind, kVersion);
  Command command;
  command.kind = static_cast<Command::Kind>(
      in.Number("kind", 0, static_cast<int64_t>(Command::Kind::kClose)));
  command.number = in.Number("number", 0, kAny);
  command.grace_ms = in.Number("grace_ms", 0, kAny);
  while (in.NextIs("process")) command.processes.push_back(ReadKey(in));
  return Checked(in, command, error);
}

std::optional<Answer> ParseAnswer(const std::string& bytes,
                                  std::string* error) {
  RecordReader in(bytes, kAnswerKind, kVersion);
  Answer answer;
  answer.number = in.Number("number", 0, kAny);
  answer.error = in.Text("error");
  return Checked(in, answer, error);
}

}  // namespace cohort::keeper
