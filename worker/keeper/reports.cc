#include "worker/keeper/reports.h"

#include <limits>

#include "worker/keeper/record.h"

namespace cohort::keeper {
namespace {

constexpr int kVersion = 1;
constexpr int64_t kIntMax = std::numeric_limits<int>::max();
constexpr int64_t kAny = std::numeric_limits<int64_t>::max();
constexpr int kSignalMax = 64;

// Both go through the fields of a report in the same order.
class Writer {
 public:
  explicit Writer(const char* kind) : out_(kind, kVersion) {}

  template <typename T>
  void Number(const char* key, const T& value, int64_t /*min*/,
              int64_t /*max*/) {
    out_.Add(key, static_cast<int64_t>(value));
  }
  void Text(const char* key, const std::string& value) {
    out_.Add(key, value.substr(0, kMessageBytesMax));
  }
  void Key(const ProcessKey& key) { out_.Add("process", key.ToString()); }
  void Keys(const std::vector<ProcessKey>& keys) {
    for (const ProcessKey& key : keys) Key(key);
  }
  void Require(bool /*holds*/, const char* /*error*/) {}

  std::string Finish() { return out_.Finish(); }

 private:
  RecordWriter out_;
};

class Reader {
 public:
  Reader(const char* kind, const std::string& bytes)
      : in_(bytes, kind, kVersion) {}

  template <typename T>
  void Number(const char* key, T& value, int64_t min, int64_t max) {
    value = static_cast<T>(in_.Number(key, min, max));
  }
  void Text(const char* key, std::string& value) { value = in_.Text(key); }
  void Key(ProcessKey& key) {
    const std::optional<ProcessKey> read = ParseProcessKey(in_.Text("process"));
    Require(read.has_value(), "field \"process\" is not a process");
    key = read.value_or(ProcessKey());
  }
  void Keys(std::vector<ProcessKey>& keys) {
    while (in_.NextIs("process")) Key(keys.emplace_back());
  }
  void Require(bool holds, const char* error) {
    if (in_.ok() && !holds) in_.Fail(error);
  }

  bool Finish(std::string* error) {
    if (in_.AtEnd()) return true;
    *error = in_.error();
    return false;
  }

 private:
  RecordReader in_;
};

template <typename Io>
void Fields(Io& io, KeeperReport& report) {
  io.Number("pid", report.pid, 1, kIntMax);
  io.Number("start_time", report.start_time, 0, kAny);
  io.Text("boot_id", report.boot_id);
  io.Text("cgroup", report.cgroup);
}

template <typename Io>
void Fields(Io& io, StartedReport& report) {
  io.Key(report.process);
  io.Number("pid", report.pid, 1, kIntMax);
  io.Number("start_time", report.start_time, 0, kAny);
}

template <typename Io>
void Fields(Io& io, ExitReport& report) {
  io.Key(report.process);
  io.Number("cause", report.cause, 0,
            static_cast<int64_t>(ExitCause::kKeeperLost));
  io.Number("exit_code", report.exit_code, -1, 255);
  io.Number("signal", report.signal, 0, kSignalMax);
  io.Number("oom_killed", report.oom_killed, 0, 1);
  io.Number("ended_wall_ns", report.ended_wall_ns, 0, kAny);
  io.Number("ran_ms", report.ran_ms, 0, kAny);
  io.Text("message", report.message);
  io.Require((report.exit_code >= 0) != (report.signal > 0),
             "it has to have either an exit code or a signal");
}

template <typename Io>
void Fields(Io& io, EndedReport& report) {
  io.Key(report.process);
}

template <typename Io>
void Fields(Io& io, LogEnd& end) {
  io.Number("offset", end.offset, 0, kAny);
  io.Number("dropped_bytes", end.dropped_bytes, 0, kAny);
}

template <typename Io>
void Fields(Io& io, Command& command) {
  io.Number("kind", command.kind, 0,
            static_cast<int64_t>(Command::Kind::kClose));
  io.Number("number", command.number, 0, kAny);
  io.Number("grace_ms", command.grace_ms, 0, kAny);
  io.Keys(command.processes);
}

template <typename Io>
void Fields(Io& io, Answer& answer) {
  io.Number("number", answer.number, 0, kAny);
  io.Text("error", answer.error);
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

template <typename Report>
std::string Encode(const Report& report) {
  Writer out(Report::kKind);
  Report fields = report;
  Fields(out, fields);
  return out.Finish();
}

template <typename Report>
std::optional<Report> Parse(const std::string& bytes, std::string* error) {
  Reader in(Report::kKind, bytes);
  Report report;
  Fields(in, report);
  if (!in.Finish(error)) return std::nullopt;
  return report;
}

#define COHORT_KEEPER_RECORD(Report)          \
  template std::string Encode(const Report&); \
  template std::optional<Report> Parse(const std::string&, std::string*)
COHORT_KEEPER_RECORD(KeeperReport);
COHORT_KEEPER_RECORD(StartedReport);
COHORT_KEEPER_RECORD(ExitReport);
COHORT_KEEPER_RECORD(EndedReport);
COHORT_KEEPER_RECORD(LogEnd);
COHORT_KEEPER_RECORD(Command);
COHORT_KEEPER_RECORD(Answer);
#undef COHORT_KEEPER_RECORD

}  // namespace cohort::keeper
