#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
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

// Opens, and makes, the directory `path` below `root` ("": that itself),
// through no link: whatever jobs left, nothing is written elsewhere.
absl::StatusOr<UniqueFd> DirectoryBelow(const std::string& root,
                                        absl::string_view path) {
  UniqueFd at(open(root.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!at) return ErrnoStatus(errno, absl::StrCat("open ", root));
  for (const absl::string_view part : absl::StrSplit(path, '/')) {
    const std::string name(part);
    if (name.empty()) continue;
    mkdirat(at.get(), name.c_str(), 0777);
    UniqueFd next(openat(at.get(), name.c_str(),
                         O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!next || name == "..") {
      return ErrnoStatus(name == ".." ? EINVAL : errno,
                         absl::StrCat("make the directory ", root, "/", path));
    }
    at = std::move(next);
  }
  return at;
}

absl::Status WriteAll(int fd, absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t wrote = write(fd, bytes.data(), bytes.size());
    if (wrote < 0) return ErrnoStatus(errno, "write");
    bytes.remove_prefix(static_cast<size_t>(wrote));
  }
  return absl::OkStatus();
}

// The file's bytes at `directory`/`name`, which is new.
absl::Status FetchBytes(const Cluster& cluster, const JobId& id,
                        const JobFile& file, int directory, const char* name) {
  const UniqueFd out(openat(directory, name,
                            O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC,
                            file.file.is_executable() ? 0777 : 0666));
  if (!out) return ErrnoStatus(errno, "make a file");
  COHORT_RETURN_IF_ERROR(cluster.ReadFile(
      id, file,
      [&out](absl::string_view bytes) { return WriteAll(out.get(), bytes); }));
  const timespec modified =
      absl::ToTimespec(absl::FromUnixMicros(file.file.modified_us()));
  const timespec times[2] = {modified, modified};
  futimens(out.get(), times);
  return absl::OkStatus();
}

// So that a file is there whole, or not.
absl::Status FetchFile(const Cluster& cluster, const JobId& id,
                       const JobFile& file, const std::string& root,
                       const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string parent =
      slash == std::string::npos ? "" : path.substr(0, slash);
  const std::string name = path.substr(slash + 1);  // npos + 1 is 0
  COHORT_ASSIGN_OR_RETURN(const UniqueFd directory,
                          DirectoryBelow(root, parent));
  const std::string part = absl::StrCat(".cohort-part-", getpid());
  unlinkat(directory.get(), part.c_str(), 0);
  const absl::Status made =
      file.file.link().empty()
          ? FetchBytes(cluster, id, file, directory.get(), part.c_str())
      : symlinkat(file.file.link().c_str(), directory.get(), part.c_str()) == 0
          ? absl::OkStatus()
          : ErrnoStatus(errno, "link");
  if (made.ok() && renameat(directory.get(), part.c_str(), directory.get(),
                            name.c_str()) == 0) {
    return absl::OkStatus();
  }
  const int error = errno;
  unlinkat(directory.get(), part.c_str(), 0);
  return made.ok() ? ErrnoStatus(error, "rename") : made;
}

// Where each node's files go, by its id: below its name when there are several,
// and its id where two have one name.
std::map<std::string, std::string> PlacesOf(const JobFiles& files) {
  std::map<std::string, std::string> names;
  for (const JobFile& file : files.files) names[file.node_id] = file.node_name;
  std::map<std::string, int> uses;
  for (const auto& [id, name] : names) ++uses[name];
  std::map<std::string, std::string> places;
  for (const auto& [id, name] : names) {
    const std::string plain = absl::StrReplaceAll(name, {{"/", "_"}});
    places[id] = names.size() == 1 ? ""
                 : uses[name] == 1
                     ? plain + "/"
                     : absl::StrCat(plain, ".", IdText(id).substr(0, 8), "/");
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
  const std::map<std::string, std::string> places = PlacesOf(files);
  int64_t bytes = 0;
  int count = 0;
  bool failed = !files.nodes_away.empty();
  for (const JobFile& file : files.files) {
    if (!IsChosen(file.file.path(), chosen)) continue;
    const absl::Status fetched =
        FetchFile(*cluster, id, file, to,
                  absl::StrCat(places.at(file.node_id), file.file.path()));
    if (!fetched.ok()) {
      // One that went while the job runs, a directory that is in its way: the
      // others are wanted all the same.
      failed = true;
      Fail(Annotate(fetched, file.file.path()), /*json=*/false);
      continue;
    }
    bytes += file.file.size_bytes();
    ++count;
  }
  SayNodesAway(files);
  if (count == 0 && !chosen.empty() && !failed) {
    return absl::NotFoundError(absl::StrCat(
        "job ", id.ToText(), " has no file ", absl::StrJoin(chosen, ", "),
        " (`cohort jobs files ", id.ToText(), "` lists them)"));
  }
  std::fputs(
      absl::StrCat("cohort: ", count, count == 1 ? " file, " : " files, ",
                   SizeToText(bytes), " in ", OneLine(to), "\n")
          .c_str(),
      stderr);
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
