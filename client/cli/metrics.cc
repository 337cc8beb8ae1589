#include <unistd.h>

#include <cstdio>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "nlohmann/json.hpp"

#include "client/cli/command.h"
#include "client/cli/errors.h"
#include "client/cli/job_name.h"
#include "client/cli/job_text.h"
#include "client/cli/progress.h"
#include "client/cli/table.h"
#include "client/cli/tensorboard.h"
#include "client/message_text.h"
#include "client/metric_log.h"
#include "common/exit_code.h"
#include "common/file.h"
#include "common/line_chart.h"
#include "common/printable_text.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "rpc/wire_values.h"

namespace cohort::cli {
namespace {

constexpr size_t kRowsShown = 20;
constexpr int kTableDigits = 6;
constexpr int kAllDigits = 17;
constexpr size_t kPlottedMax = 6;
constexpr absl::Duration kTopEvery = absl::Seconds(1);

struct MetricsFlags {
  std::string job;
  std::string format = "table";
  std::string directory;
};

// Says on stderr what could not be read.
absl::StatusOr<std::vector<MetricRow>> RowsOf(const Cluster& cluster,
                                              const JobId& id) {
  COHORT_ASSIGN_OR_RETURN(MetricLog log, ReadMetricLog(cluster, id));
  if (log.bad_lines > 0) {
    Say(absl::StrCat(log.bad_lines, " of the lines of ", kMetricLogFile,
                     " are not JSON objects with a step, and are left out; "
                     "the first is line ",
                     log.first_bad_line));
  }
  if (!log.file_error.ok()) {
    Say(absl::StrCat("the ", log.rows.size(),
                     " points that the head keeps are shown, not every step: ",
                     log.file_error.message()));
  }
  return std::move(log.rows);
}

std::set<std::string> NamesOf(const std::vector<MetricRow>& rows) {
  std::set<std::string> names;
  for (const MetricRow& row : rows) {
    for (const auto& [name, value] : row.values) names.insert(name);
  }
  return names;
}

// Empty where the row has none.
std::string Cell(const MetricRow& row, const std::string& name, int digits) {
  const auto found = row.values.find(name);
  if (found == row.values.end()) return "";
  return absl::StrFormat("%.*g", digits, found->second);
}

std::string Rows(const std::vector<MetricRow>& rows, size_t first) {
  const std::set<std::string> names = NamesOf(rows);
  std::vector<std::string> header = {"step"};
  for (const std::string& name : names) header.push_back(OneLine(name));
  Table table(header);
  for (size_t i = first; i < rows.size(); ++i) {
    std::vector<std::string> cells = {absl::StrCat(rows[i].step)};
    for (const std::string& name : names) {
      cells.push_back(Cell(rows[i], name, kTableDigits));
    }
    table.Add(std::move(cells));
  }
  return table.ToString(LineColumns(STDOUT_FILENO));
}

// A field as RFC 4180 has it.
std::string Quoted(const std::string& field) {
  if (field.find_first_of(",\"\n\r") == std::string::npos) return field;
  return absl::StrCat("\"", absl::StrReplaceAll(field, {{"\"", "\"\""}}), "\"");
}

std::string Csv(const std::vector<MetricRow>& rows) {
  const std::set<std::string> names = NamesOf(rows);
  std::string text = "step";
  for (const std::string& name : names) {
    absl::StrAppend(&text, ",", Quoted(OneLine(name)));
  }
  text += "\n";
  for (const MetricRow& row : rows) {
    absl::StrAppend(&text, row.step);
    for (const std::string& name : names) {
      absl::StrAppend(&text, ",", Cell(row, name, kAllDigits));
    }
    text += "\n";
  }
  return text;
}

std::string Json(const std::vector<MetricRow>& rows) {
  auto list = nlohmann::ordered_json::array();
  for (const MetricRow& row : rows) {
    auto& line = list.emplace_back();
    line["step"] = row.step;
    for (const auto& [name, value] : row.values) line[name] = value;
  }
  return list.dump(2, ' ', false,
                   nlohmann::ordered_json::error_handler_t::replace);
}

absl::StatusOr<int> WriteTensorBoard(const Job& job,
                                     const std::vector<MetricRow>& rows,
                                     const std::string& directory) {
  if (directory.empty()) {
    return UsageError("--format tensorboard writes a file: name --dir DIR");
  }
  COHORT_RETURN_IF_ERROR(MakeDirectories(directory, 0777));
  const absl::Time time = rpc::FromWire(
      job.has_started_at() ? job.started_at() : job.submitted_at());
  const absl::Duration ran = rpc::FromWire(job.ran());
  const std::string path =
      absl::StrCat(directory, "/events.out.tfevents.",
                   absl::ToUnixSeconds(time), ".", IdText(job.job_id()));
  COHORT_RETURN_IF_ERROR(
      WriteFileAtomically(path, TensorBoardEvents(rows, time, ran), 0666));
  Say(absl::StrCat(rows.size(), " steps in ", path));
  return kExitOk;
}

absl::StatusOr<int> ShowMetrics(const Invocation& invocation,
                                const MetricsFlags& flags) {
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<Cluster> cluster,
                          Connect(invocation, kReadDeadline));
  COHORT_ASSIGN_OR_RETURN(const JobId id, FindJob(*cluster, flags.job));
  COHORT_ASSIGN_OR_RETURN(const std::vector<MetricRow> rows,
                          RowsOf(*cluster, id));
  if (flags.format == "tensorboard") {
    COHORT_ASSIGN_OR_RETURN(const Job job, cluster->Get(id));
    return WriteTensorBoard(job, rows, flags.directory);
  }
  if (flags.format == "json") {
    COHORT_RETURN_IF_ERROR(Print(Json(rows)));
  } else if (flags.format == "csv") {
    COHORT_RETURN_IF_ERROR(PrintRaw(Csv(rows)));
  } else {
    const size_t first =
        rows.size() > kRowsShown ? rows.size() - kRowsShown : 0;
    COHORT_RETURN_IF_ERROR(PrintRaw(Rows(rows, first)));
    if (first > 0) {
      Say(absl::StrCat("the last ", kRowsShown, " of ", rows.size(),
                       " steps (--format csv or json has all)"));
    }
  }
  return kExitOk;
}

// ---- plot

struct PlotFlags {
  std::vector<std::string> jobs;
  std::string metric = "loss";
  std::string svg;
};

absl::StatusOr<LineChart::Line> LineOf(const Cluster& cluster, const JobId& id,
                                       const std::string& metric) {
  COHORT_ASSIGN_OR_RETURN(const Job job, cluster.Get(id));
  COHORT_ASSIGN_OR_RETURN(const std::vector<MetricRow> rows,
                          RowsOf(cluster, id));
  const std::string& name = job.spec().name();
  LineChart::Line line{.name = absl::StrCat(name, name.empty() ? "" : " ",
                                            ShortId(job.job_id()))};
  for (const MetricRow& row : rows) {
    const auto value = row.values.find(metric);
    if (value == row.values.end()) continue;
    line.points.push_back({static_cast<double>(row.step), value->second});
  }
  if (!line.points.empty()) return line;
  return absl::NotFoundError(absl::StrCat(
      "job ", id.ToText(), " has no metric \"", metric, "\" (it has ",
      rows.empty() ? "none" : absl::StrJoin(NamesOf(rows), ", "), ")"));
}

absl::StatusOr<int> Plot(const Invocation& invocation, const PlotFlags& flags) {
  if (flags.jobs.size() > kPlottedMax) {
    return UsageError(
        absl::StrCat("at most ", kPlottedMax, " jobs fit into one plot"));
  }
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<Cluster> cluster,
                          Connect(invocation, kReadDeadline));
  LineChart chart{
      .title = flags.metric, .x_name = "step", .y_name = flags.metric};
  for (const std::string& name : flags.jobs) {
    COHORT_ASSIGN_OR_RETURN(const JobId id, FindJob(*cluster, name));
    COHORT_ASSIGN_OR_RETURN(LineChart::Line line,
                            LineOf(*cluster, id, flags.metric));
    if (!flags.svg.empty()) {
      chart.lines.push_back(line);
      chart.lines.back().is_faint = true;
      chart.lines.back().name += ", each step";
      line.points = RunningMean(std::move(line.points));
    }
    chart.lines.push_back(std::move(line));
  }
  if (!flags.svg.empty()) {
    COHORT_RETURN_IF_ERROR(WriteFileAtomically(flags.svg, chart.ToSvg(), 0666));
    Say(flags.svg);
    return kExitOk;
  }
  constexpr size_t kColumns = 100;  // where nobody says how many there are
  const size_t columns = LineColumns(STDOUT_FILENO);
  COHORT_RETURN_IF_ERROR(
      PrintRaw(chart.ToText(columns == 0 ? kColumns : columns)));
  return kExitOk;
}

// ---- top

// "name  value" lines of what the job reports now.
std::string TopText(const Job& job) {
  std::string text = absl::StrCat(OneLine(JobLine(job)), "\n");
  const auto metrics =
      nlohmann::ordered_json::parse(job.metrics_json(), nullptr, false);
  if (!metrics.is_object() || metrics.empty()) {
    return absl::StrCat(text,
                        "  it has reported no metrics (what a program wrote to "
                        "metrics.jsonl: `cohort jobs metrics`)\n");
  }
  const auto line = [&text](absl::string_view name, absl::string_view value) {
    absl::StrAppendFormat(&text, "  %-18s %s\n", OneLine(name), value);
  };
  for (const auto& [name, value] : metrics.items()) {
    if (value.is_number() && (name == "progress" || name == "loader_share" ||
                              name == "collective_share")) {
      line(name, absl::StrFormat("%.1f %%", 100 * value.get<double>()));
    } else if (value.is_number()) {
      line(name, absl::StrFormat("%.8g", value.get<double>()));
    } else {
      line(name, OneLine(value.dump()));
    }
  }
  return text;
}

absl::StatusOr<int> Top(const Invocation& invocation, const std::string& name) {
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<Cluster> cluster,
                          Connect(invocation, kReadDeadline));
  COHORT_ASSIGN_OR_RETURN(const JobId id, FindJob(*cluster, name));
  const bool is_live = isatty(STDOUT_FILENO) != 0;
  for (;;) {
    COHORT_ASSIGN_OR_RETURN(const Job job, cluster->Get(id));
    // From the top of a clean screen, so that the numbers stay in place.
    COHORT_RETURN_IF_ERROR(
        PrintRaw(absl::StrCat(is_live ? "\x1b[H\x1b[J" : "", TopText(job))));
    if (!is_live || HasEnded(job.state())) return kExitOk;
    // Its end, or the moment to look again.
    const absl::Status waited = cluster->Wait(id, kTopEvery).status();
    if (!waited.ok() && !absl::IsDeadlineExceeded(waited)) return waited;
  }
}

}  // namespace

void AddJobMetrics(CLI::App& jobs, Invocation& invocation) {
  auto metrics = std::make_shared<MetricsFlags>();
  CLI::App* show = AddCommand(
      jobs, "metrics", "Show a job's metrics, step by step", invocation,
      [&invocation, metrics] { return ShowMetrics(invocation, *metrics); });
  AddJobArgument(*show, metrics->job);
  show->add_option("--format", metrics->format,
                   "table (the last 20 steps), csv, json or tensorboard")
      ->check(CLI::IsMember({"table", "csv", "json", "tensorboard"}))
      ->type_name("FORMAT");
  show->add_option("--dir", metrics->directory,
                   "Where tensorboard's event file is written")
      ->type_name("DIR");
  show->footer(
      "They are the lines of metrics.jsonl in the job's run directory "
      "(COHORT_STORAGE_DIR), which Fit() writes, and any program may: "
      "{\"step\": 12, \"loss\": 0.25}.  Where that cannot be read, they are "
      "what "
      "the head has kept of the job's reports.");

  auto top_job = std::make_shared<std::string>();
  CLI::App* top =
      AddCommand(jobs, "top", "Watch what a job reports", invocation,
                 [&invocation, top_job] { return Top(invocation, *top_job); });
  AddJobArgument(*top, *top_job);
  top->footer(
      "loader_share and collective_share: parts of the ranks' time that go to "
      "waiting for data and to collectives. slowest_rank: the one that the "
      "others wait for.");
}

void AddPlot(CLI::App& cohort, Invocation& invocation) {
  auto plot_flags = std::make_shared<PlotFlags>();
  CLI::App* plot = AddCommand(
      cohort, "plot", "Draw a metric of jobs, step by step", invocation,
      [&invocation, plot_flags] { return Plot(invocation, *plot_flags); });
  AddJobsArgument(*plot, plot_flags->jobs)->required();
  plot->add_option("--metric", plot_flags->metric, "The metric")
      ->capture_default_str()
      ->type_name("NAME");
  plot->add_option("--svg", plot_flags->svg,
                   "Write a picture instead, with running means")
      ->type_name("FILE");
}

}  // namespace cohort::cli
