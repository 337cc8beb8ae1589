#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
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

void SayWhatIsMissing(const JobFiles& files) {
  if (!files.nodes_gone.empty()) Say(GoneText(files));
  if (files.nodes_away.empty()) return;
  Say(absl::StrCat("node ", absl::StrJoin(files.nodes_away, ", node "),
                   " did not answer: what it has of the job is not "
                   "here (`cohort nodes` shows how it is)"));
}

absl::StatusOr<int> ListFiles(const Invocation& invocation,
                              const std::string& name) {
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<Cluster> cluster,
                          Connect(invocation, kReadDeadline));
  COHORT_ASSIGN_OR_RETURN(const JobId id, FindJob(*cluster, name));
  COHORT_ASSIGN_OR_RETURN(const JobFiles files, cluster->Files(id));
  const int code = files.nodes_away.empty() ? kExitOk : kExitFailure;
  if (invocation.json) {
    COHORT_RETURN_IF_ERROR(Print(JobFilesJson(files)));
    return code;
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
  SayWhatIsMissing(files);
  return code;
}

// The file's bytes at `directory`/`name`, which is new.
absl::Status FetchBytes(const Cluster& cluster, const JobId& id,
                        const JobFile& file, int directory, const char* name) {
  const UniqueFd out(openat(directory, name,
                            O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC,
                            file.file.is_executable() ? 0777 : 0666));
  if (!out) return ErrnoStatus(errno, "make a file");
  COHORT_RETURN_IF_ERROR(
      cluster.ReadFile(id, file, [&](absl::string_view bytes) {
        return WriteAll(out.get(), file.file.path(), bytes);
      }));
  const timespec modified =
      absl::ToTimespec(absl::FromUnixMicros(file.file.modified_us()));
  const timespec times[2] = {modified, modified};
  futimens(out.get(), times);
  return absl::OkStatus();
}

absl::Status FetchLink(const JobFile& file, int directory, const char* name) {
  return symlinkat(file.file.link().c_str(), directory, name) == 0
             ? absl::OkStatus()
             : ErrnoStatus(errno, "link");
}

// So that a file is there whole, or not.
absl::Status FetchFile(const Cluster& cluster, const JobId& id,
                       const JobFile& file, int root, const std::string& path) {
  const size_t slash = path.rfind('/');
  COHORT_ASSIGN_OR_RETURN(
      const UniqueFd directory,
      OpenDirectoryBelow(
          root, slash == std::string::npos ? "" : path.substr(0, slash), 0777));
  const std::string name = path.substr(slash + 1);  // npos + 1 is 0
  const std::string part = absl::StrCat(".cohort-part-", getpid());
  unlinkat(directory.get(), part.c_str(), 0);
  absl::Status fetched =
      file.file.link().empty()
          ? FetchBytes(cluster, id, file, directory.get(), part.c_str())
          : FetchLink(file, directory.get(), part.c_str());
  if (fetched.ok() && renameat(directory.get(), part.c_str(), directory.get(),
                               name.c_str()) != 0) {
    fetched = ErrnoStatus(errno, "rename");
  }
  if (!fetched.ok()) unlinkat(directory.get(), part.c_str(), 0);
  return fetched;
}

// Where each node's files go, by its id: below its name when there are several
// directories, and its id where two have one name.
std::map<std::string, std::string> PlacesOf(const JobFiles& files) {
  std::map<std::string, std::string> names;
  for (const JobFile& file : files.files) names[file.node_id] = file.node_name;
  std::map<std::string, int> uses;
  for (const auto& [id, name] : names) ++uses[name];
  std::map<std::string, std::string> places;
  for (const auto& [id, name] : names) {
    std::string& place = places[id];
    if (names.size() == 1 || !files.shared_directory.empty()) continue;
    place = absl::StrReplaceAll(name, {{"/", "_"}});
    if (uses[name] > 1) absl::StrAppend(&place, ".", IdText(id).substr(0, 8));
    place += "/";
  }
  return places;
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
  COHORT_RETURN_IF_ERROR(MakeDirectories(to, 0777));
  const UniqueFd root(open(to.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!root) return ErrnoStatus(errno, absl::StrCat("open ", to));
  const std::map<std::string, std::string> places = PlacesOf(files);
  int64_t bytes = 0;
  int count = 0;
  bool failed = !files.nodes_away.empty() || !files.nodes_gone.empty();
  std::set<std::string> silent;
  for (const JobFile& file : files.files) {
    if (!IsChosen(file.file.path(), chosen) || silent.contains(file.node_id)) {
      continue;
    }
    const absl::Status fetched =
        FetchFile(*cluster, id, file, root.get(),
                  absl::StrCat(places.at(file.node_id), file.file.path()));
    if (!fetched.ok()) {
      // One that went while the job runs, a directory that is in its way: the
      // others are wanted all the same.
      failed = true;
      if (absl::IsUnavailable(fetched) || absl::IsDeadlineExceeded(fetched)) {
        silent.insert(file.node_id);  // its other files are not waited for
      }
      Fail(Annotate(fetched, file.file.path()), /*json=*/false);
      continue;
    }
    bytes += file.file.size_bytes();
    ++count;
  }
  SayWhatIsMissing(files);
  if (count == 0 && !chosen.empty() && !failed) {
    return absl::NotFoundError(absl::StrCat(
        "job ", id.ToText(), " has no file ", absl::StrJoin(chosen, ", "),
        " (`cohort jobs files ", id.ToText(), "` lists them)"));
  }
  Say(absl::StrCat(count, count == 1 ? " file, " : " files, ",
                   SizeToText(bytes), " in ", to));
  return failed ? kExitFailure : kExitOk;
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
  AddJobArgument(*list, flags->job);
  AddJsonFlag(*list, invocation);
  list->footer(
      "What ranks wrote to COHORT_STORAGE_DIR; and, as "
      "work-<attempt>/<node>/..., what they left in their working directory "
      "beside what was sent along.");
  CLI::App* get = AddCommand(
      jobs, "get-files", "Fetch the files that a job's ranks left", invocation,
      [&invocation, flags] {
        return GetFiles(invocation, flags->job, flags->directory, flags->paths);
      });
  AddJobArgument(*get, flags->job);
  get->add_option("DIR", flags->directory,
                  "Destination, with a directory for each node if there are "
                  "several; existing files are replaced")
      ->required();
  get->add_option("PATH", flags->paths,
                  "Only these files or directories of `jobs files`");
}

}  // namespace cohort::cli
