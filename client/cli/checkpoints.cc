#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "nlohmann/json.hpp"

#include "client/checkpoint_files.h"
#include "client/cli/command.h"
#include "client/cli/errors.h"
#include "client/cli/fields.h"
#include "client/cli/job_name.h"
#include "client/cli/progress.h"
#include "client/cli/table.h"
#include "common/exit_code.h"
#include "common/printable_text.h"
#include "common/real_clock.h"
#include "common/size_text.h"
#include "common/status_macros.h"
#include "common/status_util.h"

namespace cohort::cli {
namespace {

using nlohmann::ordered_json;

constexpr char kModel[] = "model";

struct CheckpointFlags {
  std::string job;
  std::string checkpoint = "latest";
  std::string part = kModel;
  std::string file;
};

// A job's, with the connection by which they are read.
struct Found {
  std::unique_ptr<Cluster> cluster;
  JobId job;
  std::vector<JobCheckpoint> list;
};

absl::StatusOr<Found> FindCheckpoints(const Invocation& invocation,
                                      const std::string& name) {
  Found found;
  COHORT_ASSIGN_OR_RETURN(found.cluster, Connect(invocation, kReadDeadline));
  COHORT_ASSIGN_OR_RETURN(found.job, FindJob(*found.cluster, name));
  COHORT_ASSIGN_OR_RETURN(found.list,
                          ListCheckpoints(*found.cluster, found.job));
  return found;
}

std::string PathsOf(const std::vector<JobCheckpoint>& list) {
  const auto path_of = [](std::string* out, const JobCheckpoint& each) {
    absl::StrAppend(out, each.path);
  };
  return list.empty() ? "none" : absl::StrJoin(list, ", ", path_of);
}

// "latest", "best", a step, "step-5", or a whole path; of several attempts'
// checkpoints of one step the newest.
absl::StatusOr<JobCheckpoint> Choose(const Found& found,
                                     const std::string& name) {
  const auto is_meant = [&](const JobCheckpoint& each) {
    if (name == "latest") return each.is_latest;
    if (name == "best") return each.is_best;
    return each.path == name || absl::EndsWith(each.path, "/" + name) ||
           absl::EndsWith(each.path, "/step-" + name);
  };
  for (auto each = found.list.rbegin(); each != found.list.rend(); ++each) {
    if (is_meant(*each)) return *each;
  }
  return absl::NotFoundError(
      absl::StrCat("job ", found.job.ToText(), " has no checkpoint \"", name,
                   "\" (it has ", PathsOf(found.list), ")"));
}

std::vector<std::string> MarksOf(const JobCheckpoint& checkpoint) {
  std::vector<std::string> marks;
  if (!checkpoint.status.ok()) marks.emplace_back("damaged");
  if (checkpoint.is_latest) marks.emplace_back("latest");
  if (checkpoint.is_best) marks.emplace_back("best");
  return marks;
}

ordered_json CheckpointJson(const JobCheckpoint& checkpoint) {
  return {
      {"path", checkpoint.path},
      {"node", checkpoint.node_name},
      {"step", checkpoint.step},
      {"epochs", checkpoint.epochs},
      {"size_bytes", checkpoint.bytes()},
      {"written_at", absl::FormatTime(absl::RFC3339_sec, checkpoint.written_at,
                                      absl::UTCTimeZone())},
      {"marks", MarksOf(checkpoint)},
      {"metrics", checkpoint.metrics}};
}

absl::Status PrintJson(const ordered_json& json) {
  return Print(
      json.dump(2, ' ', false, ordered_json::error_handler_t::replace));
}

std::string MetricsText(const JobCheckpoint& checkpoint) {
  const auto text_of = [](std::string* out, const auto& metric) {
    absl::StrAppendFormat(out, "%s=%.4g", OneLine(metric.first), metric.second);
  };
  return absl::StrJoin(checkpoint.metrics, " ", text_of);
}

absl::StatusOr<int> ListThem(const Invocation& invocation,
                             const CheckpointFlags& flags) {
  COHORT_ASSIGN_OR_RETURN(const Found found,
                          FindCheckpoints(invocation, flags.job));
  if (invocation.json) {
    auto list = ordered_json::array();
    for (const JobCheckpoint& each : found.list)
      list.push_back(CheckpointJson(each));
    COHORT_RETURN_IF_ERROR(PrintJson(list));
    return kExitOk;
  }
  const absl::Time now = MachineClock().Wall();
  Table table(
      {"CHECKPOINT", "STEP", "EPOCHS", "SIZE", "AGE", "MARKS", "METRICS"});
  for (const JobCheckpoint& each : found.list) {
    table.Add({each.path, absl::StrCat(each.step), absl::StrCat(each.epochs),
               SizeToText(static_cast<int64_t>(each.bytes())),
               AgeText(std::max(now - each.written_at, absl::ZeroDuration())),
               absl::StrJoin(MarksOf(each), ","), MetricsText(each)});
  }
  COHORT_RETURN_IF_ERROR(PrintRaw(table.ToString(LineColumns(STDOUT_FILENO))));
  return kExitOk;
}

absl::StatusOr<int> Verify(const Invocation& invocation,
                           const CheckpointFlags& flags) {
  COHORT_ASSIGN_OR_RETURN(Found found, FindCheckpoints(invocation, flags.job));
  if (!flags.checkpoint.empty()) {
    COHORT_ASSIGN_OR_RETURN(const JobCheckpoint one,
                            Choose(found, flags.checkpoint));
    found.list = {one};
  }
  bool is_good = true;
  for (const JobCheckpoint& each : found.list) {
    COHORT_ASSIGN_OR_RETURN(const std::vector<std::string> damages,
                            VerifyCheckpoint(*found.cluster, found.job, each));
    if (damages.empty()) {
      COHORT_RETURN_IF_ERROR(Print(absl::StrCat(
          OneLine(each.path), ": good, ", each.files.size(), " files, ",
          SizeToText(static_cast<int64_t>(each.bytes())))));
    }
    for (const std::string& damage : damages) {
      is_good = false;
      Fail(absl::DataLossError(damage), /*json=*/false);
    }
  }
  if (found.list.empty()) {
    std::fputs("cohort: the job has no checkpoints\n", stderr);
  }
  return is_good ? kExitOk : kExitFailure;
}

std::string TensorTable(const std::vector<CheckpointTensor>& tensors) {
  Table table({"TENSOR", "DTYPE", "SHAPE", "SIZE"});
  for (const CheckpointTensor& tensor : tensors) {
    table.Add({OneLine(tensor.name), OneLine(tensor.dtype),
               absl::StrCat("[", absl::StrJoin(tensor.shape, ","), "]"),
               SizeToText(static_cast<int64_t>(tensor.bytes))});
  }
  return table.ToString();
}

// What the manifest says, but for the files.
std::string ManifestText(const JobCheckpoint& checkpoint) {
  Fields fields;
  fields.Add("checkpoint", checkpoint.path);
  fields.Add("node", checkpoint.node_name);
  fields.Add("marks", absl::StrJoin(MarksOf(checkpoint), ", "));
  for (const auto& [name, value] : checkpoint.manifest.items()) {
    if (name == "files" || name == "metrics" || name.size() >= 15) continue;
    fields.Add(name,
               value.is_string() ? value.get<std::string>() : value.dump());
  }
  fields.Add("metrics", MetricsText(checkpoint));
  for (const JobCheckpoint::File& file : checkpoint.files) {
    fields.Add("file",
               absl::StrCat(file.name, " (", file.part, ", ",
                            SizeToText(static_cast<int64_t>(file.bytes)), ")"));
  }
  return fields.text();
}

absl::StatusOr<int> Show(const Invocation& invocation,
                         const CheckpointFlags& flags) {
  COHORT_ASSIGN_OR_RETURN(const Found found,
                          FindCheckpoints(invocation, flags.job));
  COHORT_ASSIGN_OR_RETURN(const JobCheckpoint chosen,
                          Choose(found, flags.checkpoint));
  COHORT_RETURN_IF_ERROR(chosen.status);
  // A program on plain numbers has no model.
  std::vector<std::string> parts;
  for (const JobCheckpoint::File& file : chosen.files) {
    if (std::ranges::find(parts, file.part) == parts.end()) {
      parts.push_back(file.part);
    }
  }
  std::vector<CheckpointTensor> all;
  for (const std::string& part : parts) {
    COHORT_ASSIGN_OR_RETURN(std::vector<CheckpointTensor> tensors,
                            TensorsOf(*found.cluster, found.job, chosen, part));
    for (CheckpointTensor& tensor : tensors) {
      tensor.name = absl::StrCat(part, ": ", tensor.name);
      all.push_back(std::move(tensor));
    }
  }
  if (!invocation.json) {
    COHORT_RETURN_IF_ERROR(
        PrintRaw(absl::StrCat(ManifestText(chosen), "\n", TensorTable(all))));
    return kExitOk;
  }
  ordered_json shown = CheckpointJson(chosen);
  shown["manifest"] = chosen.manifest;
  auto& list = shown["tensors"] = ordered_json::array();
  for (const CheckpointTensor& tensor : all) {
    const size_t colon = tensor.name.find(": ");
    list.push_back({{"part", tensor.name.substr(0, colon)},
                    {"name", tensor.name.substr(colon + 2)},
                    {"dtype", tensor.dtype},
                    {"shape", tensor.shape}});
  }
  COHORT_RETURN_IF_ERROR(PrintJson(shown));
  return kExitOk;
}

absl::StatusOr<int> Export(const Invocation& invocation,
                           const CheckpointFlags& flags) {
  COHORT_ASSIGN_OR_RETURN(const Found found,
                          FindCheckpoints(invocation, flags.job));
  COHORT_ASSIGN_OR_RETURN(const JobCheckpoint chosen,
                          Choose(found, flags.checkpoint));
  COHORT_RETURN_IF_ERROR(ExportCheckpoint(*found.cluster, found.job, chosen,
                                          flags.part, flags.file));
  Say(absl::StrCat(flags.part, " of ", chosen.path, " in ", flags.file));
  return kExitOk;
}

void AddChosen(CLI::App& command, std::string& checkpoint,
               const std::string& otherwise) {
  command
      .add_option("CHECKPOINT", checkpoint,
                  absl::StrCat("latest, best, a step, or a path of "
                               "`checkpoints list` (default: ",
                               otherwise, ")"))
      ->type_name("");
}

}  // namespace

void AddCheckpoints(CLI::App& cohort, Invocation& invocation) {
  CLI::App* nouns = cohort.add_subcommand(
      "checkpoints", "List, verify, show or export the checkpoints of Fit()");
  nouns->require_subcommand(1);
  auto flags = std::make_shared<CheckpointFlags>();

  CLI::App* list = AddCommand(
      *nouns, "list", "List a job's checkpoints, the oldest first", invocation,
      [&invocation, flags] { return ListThem(invocation, *flags); });
  AddJobArgument(*list, flags->job);
  AddJsonFlag(*list, invocation);
  list->footer(
      "EPOCHS: completed passes over the data. latest: a restart continues "
      "from it.\n"
      "best: by the job's score_attribute.");

  auto verified = std::make_shared<CheckpointFlags>();
  verified->checkpoint.clear();
  CLI::App* verify = AddCommand(
      *nouns, "verify", "Compare all files with their checksums", invocation,
      [&invocation, verified] { return Verify(invocation, *verified); });
  AddJobArgument(*verify, verified->job);
  AddChosen(*verify, verified->checkpoint, "all");
  verify->footer(
      "Exits with 125 when one is damaged or missing, and names it.");

  CLI::App* show = AddCommand(
      *nouns, "show", "Show a checkpoint's manifest and tensors", invocation,
      [&invocation, flags] { return Show(invocation, *flags); });
  AddJobArgument(*show, flags->job);
  AddChosen(*show, flags->checkpoint, "latest");
  AddJsonFlag(*show, invocation);

  CLI::App* save = AddCommand(
      *nouns, "export", "Write a checkpoint's model into one safetensors file",
      invocation, [&invocation, flags] { return Export(invocation, *flags); });
  AddJobArgument(*save, flags->job);
  save->add_option("FILE", flags->file,
                   "Where it is written; a file there is replaced")
      ->required();
  AddChosen(*save, flags->checkpoint, "latest");
  save->add_option("--part", flags->part,
                   "The part to export, as `checkpoints show` names it")
      ->capture_default_str()
      ->type_name("NAME");
  save->footer(
      "safetensors.torch.load_file(FILE) reads it in Python, and transformers "
      "where the model's names are those of one of its classes.");
}

}  // namespace cohort::cli
