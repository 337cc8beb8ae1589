#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"

#include "client/cli/command.h"
#include "client/cli/errors.h"
#include "client/cli/job_files.h"
#include "client/cli/job_name.h"
#include "client/cli/table.h"
#include "client/json.h"
#include "client/message_text.h"
#include "common/exit_code.h"
#include "common/file.h"
#include "common/printable_text.h"
#include "common/size_text.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "common/unique_fd.h"

namespace cohort::cli {
namespace {

namespace fs = std::filesystem;

void SayNodesAway(const JobFiles& files) {
  if (files.nodes_away.empty()) return;
  std::fputs(absl::StrCat("cohort: node ",
                          OneLine(absl::StrJoin(files.nodes_away, ", node ")),
                          " is away, and what it has of the job with it\n")
                 .c_str(),
             stderr);
}

absl::StatusOr<int> ListFiles(const Invocation& invocation,
                              const std::string& name) {
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<Cluster> cluster,
                          Connect(invocation, kReadDeadline));
  COHORT_ASSIGN_OR_RETURN(const JobId id, FindJob(*cluster, name));
  COHORT_ASSIGN_OR_RETURN(const JobFiles files, cluster->Files(id));
  if (invocation.json) {
    COHORT_RETURN_IF_ERROR(Print(JobFilesJson(files)));
    return kExitOk;
  }
  Table table({"SIZE", "MODIFIED", "NODE", "PATH"});
  for (const JobFile& each : files.files) {
    const v1::RunFile& file = each.file;
    const std::string arrow =
        file.link().empty() ? "" : absl::StrCat(" -> ", file.link());
    table.Add({SizeToText(file.size_bytes()),
               TimeText(absl::FromUnixMicros(file.modified_us())),
               each.node_name, absl::StrCat(file.path(), arrow)});
  }
  COHORT_RETURN_IF_ERROR(PrintRaw(table.ToString()));
  SayNodesAway(files);
  return kExitOk;
}

// Whether the head's word leads to a place below the directory.
absl::Status CheckBelow(const std::string& path) {
  for (const absl::string_view part : absl::StrSplit(path, '/')) {
    if (!part.empty() && part != "." && part != "..") continue;
    return absl::InvalidArgumentError(
        absl::StrCat("the head named a file outside of the job: ", path));
  }
  return absl::OkStatus();
}

// So that a file is there whole, or not.
absl::Status FetchFile(const Cluster& cluster, const JobId& id,
                       const JobFile& file, const std::string& to) {
  COHORT_RETURN_IF_ERROR(MakeDirectories(ParentDirectory(to), 0777));
  if (!file.file.link().empty()) {
    unlink(to.c_str());
    return symlink(file.file.link().c_str(), to.c_str()) == 0
               ? absl::OkStatus()
               : ErrnoStatus(errno, absl::StrCat("link ", to));
  }
  const std::string part = to + ".part";
  const UniqueFd out(open(part.c_str(),
                          O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC,
                          file.file.is_executable() ? 0777 : 0666));
  if (!out) return ErrnoStatus(errno, absl::StrCat("write ", part));
  absl::Status status =
      cluster.ReadFile(id, file, [&](absl::string_view bytes) -> absl::Status {
        while (!bytes.empty()) {
          const ssize_t wrote = write(out.get(), bytes.data(), bytes.size());
          if (wrote < 0)
            return ErrnoStatus(errno, absl::StrCat("write ", part));
          bytes.remove_prefix(static_cast<size_t>(wrote));
        }
        return absl::OkStatus();
      });
  if (status.ok()) {
    const timespec modified =
        absl::ToTimespec(absl::FromUnixMicros(file.file.modified_us()));
    const timespec times[2] = {modified, modified};
    futimens(out.get(), times);
    if (rename(part.c_str(), to.c_str()) != 0) {
      status = ErrnoStatus(errno, absl::StrCat("rename to ", to));
    }
  }
  if (!status.ok()) unlink(part.c_str());
  return status;
}

bool IsChosen(const std::string& path, const std::vector<std::string>& chosen) {
  if (chosen.empty()) return true;
  return std::any_of(chosen.begin(), chosen.end(), [&](const auto& each) {
    return path == each || absl::StartsWith(path, absl::StrCat(each, "/"));
  });
}

absl::StatusOr<int> GetFiles(const Invocation& invocation,
                             const std::string& name, const std::string& to,
                             const std::vector<std::string>& chosen) {
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<Cluster> cluster,
                          Connect(invocation, kReadDeadline));
  COHORT_ASSIGN_OR_RETURN(const JobId id, FindJob(*cluster, name));
  COHORT_ASSIGN_OR_RETURN(const JobFiles files, cluster->Files(id));
  std::set<std::string> nodes;
  for (const JobFile& file : files.files) nodes.insert(file.node_name);
  int64_t bytes = 0;
  int count = 0;
  for (const JobFile& file : files.files) {
    if (!IsChosen(file.file.path(), chosen)) continue;
    COHORT_RETURN_IF_ERROR(CheckBelow(file.file.path()));
    const std::string below =
        nodes.size() > 1 ? absl::StrCat("/", file.node_name) : "";
    COHORT_RETURN_IF_ERROR(FetchFile(
        *cluster, id, file, absl::StrCat(to, below, "/", file.file.path())));
    bytes += file.file.size_bytes();
    ++count;
  }
  SayNodesAway(files);
  if (count == 0 && !chosen.empty()) {
    return absl::NotFoundError(absl::StrCat(
        "job ", id.ToText(), " has no file ", absl::StrJoin(chosen, ", "),
        " (`cohort jobs files ", id.ToText(), "` lists them)"));
  }
  std::fputs(
      absl::StrCat("cohort: ", count, count == 1 ? " file, " : " files, ",
                   SizeToText(bytes), " in ", OneLine(to), "\n")
          .c_str(),
      stderr);
  return files.nodes_away.empty() ? kExitOk : kExitFailure;
}

}  // namespace

void AddJobFiles(CLI::App& jobs, Invocation& invocation) {
  struct Flags {
    std::string job;
    std::string directory;
    std::vector<std::string> paths;
  };
  auto flags = std::make_shared<Flags>();
  CLI::App* list = AddCommand(
      jobs, "files", "List the files that a job's ranks left", invocation,
      [&invocation, flags] { return ListFiles(invocation, flags->job); });
  list->add_option("JOB", flags->job, "A job's name, id or beginning of it")
      ->required();
  AddJsonFlag(*list, invocation);
  list->footer(
      "What ranks wrote to COHORT_STORAGE_DIR; and, as "
      "work-<attempt>/<node>/..., what they\n"
      "left in their working directory beside what was sent along.");
  CLI::App* get = AddCommand(
      jobs, "get-files", "Fetch the files that a job's ranks left", invocation,
      [&invocation, flags] {
        return GetFiles(invocation, flags->job, flags->directory, flags->paths);
      });
  get->add_option("JOB", flags->job, "A job's name, id or beginning of it")
      ->required();
  get->add_option("DIR", flags->directory,
                  "Where they are put, below the node's name if they are of "
                  "several nodes; files there are replaced")
      ->required();
  get->add_option("PATH", flags->paths,
                  "Only these files or directories of `jobs files`");
}

}  // namespace cohort::cli
