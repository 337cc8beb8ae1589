#include "client/cli/package_flags.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <map>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "client/cli/command.h"
#include "client/cli/errors.h"
#include "client/cli/progress.h"
#include "client/cli/transfer_progress.h"
#include "common/printable_text.h"
#include "common/real_clock.h"
#include "common/size_text.h"
#include "common/status_macros.h"

namespace cohort::cli {
namespace {

namespace fs = std::filesystem;

using Entry = PackageFiles::Entry;

// Above it people mostly send what they did not mean to.
constexpr int64_t kLargeBytes = 100'000'000;
constexpr size_t kNamesShown = 3;

void SayLeftOut(const PackageFiles& files) {
  if (files.left_out.empty()) return;
  std::vector<std::string> names;
  for (const PackageFiles::LeftOut& each : files.left_out) {
    if (names.size() == kNamesShown) {
      names.push_back("...");
      break;
    }
    names.push_back(each.name);
  }
  const size_t count = files.left_out.size();
  Say(absl::StrCat(count, count == 1 ? " entry" : " entries",
                   " left out of the package: ", absl::StrJoin(names, ", ")));
}

Progress::Kind ProgressKind(bool is_quiet) {
  return is_quiet ? Progress::Kind::kNone : Progress::KindFor(STDERR_FILENO);
}

// What is largest at the package's top, directories with all that is in them.
void SayWhenLarge(const PackageFiles& files) {
  const int64_t total = files.size_bytes();
  if (total <= kLargeBytes) return;
  std::map<std::string, int64_t> sizes;
  for (const Entry& entry : files.entries) {
    sizes[entry.name.substr(0, entry.name.find('/'))] += entry.size_bytes();
  }
  std::vector<std::pair<int64_t, std::string>> largest;
  for (const auto& [name, size] : sizes) {
    if (size > total / 100) largest.emplace_back(size, name);
  }
  std::sort(largest.rbegin(), largest.rend());
  largest.resize(std::min(largest.size(), kNamesShown));
  const auto format = [](std::string* out, const auto& each) {
    absl::StrAppend(out, each.second, " ", SizeToText(each.first));
  };
  Say(absl::StrCat("the package has ", SizeToText(total), ", most in ",
                   absl::StrJoin(largest, ", ", format),
                   " (leave out what the ranks do not need with --exclude or "
                   ".cohortignore; data may lie where all nodes see it)"));
}

// A program without a slash is looked up on PATH.
void SayHowToRunSent(const PackageFiles& files, const std::string& program) {
  const auto sent = std::find_if(
      files.entries.begin(), files.entries.end(), [&](const Entry& entry) {
        return entry.name == program && S_ISREG(entry.info.st_mode) &&
               (entry.is_executable() || absl::EndsWith(program, ".py"));
      });
  if (sent == files.entries.end()) return;
  Say(absl::StrCat(program,
                   " is looked up on the ranks' PATH; for the one that is sent "
                   "along write ",
                   sent->is_executable() ? "./" : "python3 ", program));
}

bool IsBelow(absl::string_view name, absl::string_view directory) {
  return name == directory ||
         absl::StartsWith(name, absl::StrCat(directory, "/"));
}

// What the ranks find under `name`; a link on the way counts as all below it.
const Entry* FindEntry(const PackageFiles& files, const std::string& name) {
  for (const Entry& entry : files.entries) {
    if (entry.name == name ||
        (!entry.link.empty() && IsBelow(name, entry.name))) {
      return &entry;
    }
  }
  return nullptr;
}

// How the ranks call the file `path` of this machine; empty: it is not sent.
std::string NameInPackage(const PackageFiles& files, const fs::path& path) {
  for (const Entry& entry : files.entries) {
    std::error_code error;
    if (fs::path(entry.name).filename() == path.filename() &&
        fs::equivalent(path, entry.path, error)) {
      return entry.name;
    }
  }
  return "";
}

// `is_run`: it is the program, or the script that one interprets.
absl::Status CheckIsFound(const std::string& word, bool is_program, bool is_run,
                          const PackageFiles& files) {
  const std::string name = fs::path(word).lexically_normal();
  const std::string shown = Shown(word);
  if (const Entry* entry = FindEntry(files, name)) {
    if (is_program && S_ISREG(entry->info.st_mode) && !entry->is_executable()) {
      return UsageError(absl::StrCat(shown, " is not executable (chmod +x ",
                                     Shown(entry->path), ")"));
    }
    return absl::OkStatus();
  }
  for (const PackageFiles::LeftOut& each : files.left_out) {
    if (!IsBelow(name, each.name)) continue;
    return UsageError(absl::StrCat(
        shown, " is left out of the package by ", Shown(each.why),
        " (--exclude '!", Shown(each.name), "' as the last one sends it)"));
  }
  std::error_code error;
  if (!fs::is_regular_file(word, error)) {
    if (!is_run) return absl::OkStatus();
    return UsageError(absl::StrCat(
        shown, " is neither here nor in what is sent along (check the name)"));
  }
  const char* prefix = is_program ? "./" : "";
  const std::string sent = NameInPackage(files, word);
  if (!sent.empty()) {
    return UsageError(absl::StrCat(shown,
                                   " has another name where the ranks "
                                   "start (write ",
                                   prefix, Shown(sent), ")"));
  }
  const std::string base = fs::path(name).filename();
  return UsageError(absl::StrCat(
      shown, " is here, but not where the ranks start (send it with --file ",
      Shown(name),
      base == name ? "" : absl::StrCat(" and write ", prefix, base),
      files.entries.empty() ? ", or this directory with --working-dir ." : "",
      ")"));
}

// A file of the current directory, by a name that every node may know.
bool IsAbsoluteHere(const std::string& word) {
  std::error_code error;
  const std::string here = fs::current_path(error);
  return !error && IsBelow(fs::path(word).lexically_normal().string(), here) &&
         fs::is_regular_file(word, error);
}

bool IsScript(absl::string_view word) {
  return !absl::StartsWith(word, "-") &&
         (absl::EndsWith(word, ".py") || absl::EndsWith(word, ".sh"));
}

bool Interprets(const std::string& program) {
  const std::string name = fs::path(program).filename();
  return absl::StartsWith(name, "python") || name == "sh" || name == "bash";
}

// Where the script is among the words of `command`, which interprets one; 0:
// nowhere.
size_t ScriptIndex(const std::vector<std::string>& command) {
  const bool is_python =
      absl::StartsWith(fs::path(command.front()).filename().string(), "python");
  for (size_t i = 1; i < command.size(); ++i) {
    const std::string& word = command[i];
    if (!absl::StartsWith(word, "-")) return i;
    // `-X dev`, `-o pipefail`: the next word goes with it.
    if (word == (is_python ? "-X" : "-o") || (is_python && word == "-W")) {
      ++i;
    } else if (!absl::StartsWith(word, "-X") && !absl::StartsWith(word, "--") &&
               word.find_first_of(is_python ? "cm" : "cs") != word.npos) {
      return 0;  // `-c CODE`, `-m MODULE`
    }
  }
  return 0;
}

// A rank looks for such a name on its PATH, not where it starts.
void SayWhenOnPath(const std::string& program) {
  std::error_code error;
  if (!IsScript(program) || absl::StrContains(program, "/") ||
      !fs::is_regular_file(program, error)) {
    return;
  }
  Say(absl::StrCat(Shown(program), " is looked for on the ranks' PATH (write ",
                   absl::EndsWith(program, ".py") ? "python3 " : "sh ",
                   Shown(program), " and send it with --file ", Shown(program),
                   ")"));
}

// The words of `command` that name its program or its script by a path.
std::vector<std::string> PathsIn(const std::vector<std::string>& command) {
  std::vector<std::string> paths;
  for (const std::string& word : command) {
    const bool is_program = &word == &command.front();
    if (is_program ? absl::StrContains(word, "/") : IsScript(word)) {
      paths.push_back(word);
    }
  }
  return paths;
}

}  // namespace

void AddPackageFlags(CLI::App& command, PackageFlags& flags) {
  command
      .add_option("--working-dir", flags.working_dir,
                  "Send this directory along; each rank starts in a copy.  "
                  "What .cohortignore, else .gitignore, names stays here, as "
                  "do .git, __pycache__ and Python's venvs")
      ->option_text("DIR");
  command
      .add_option("--file", flags.files,
                  "Send this file or directory along; each rank starts beside "
                  "it (may be given again)")
      ->option_text("PATH")
      ->allow_extra_args(false);
  command
      .add_option("--exclude", flags.exclude,
                  "Leave out what matches, as in .gitignore, whatever ignore "
                  "files say; !PATTERN sends it (may be given again)")
      ->option_text("PATTERN")
      ->allow_extra_args(false);
  command.add_flag("--no-ignore", flags.no_ignore,
                   "Read no ignore files: leave out only what --exclude names");
}

absl::Status CheckCommand(const std::vector<std::string>& command,
                          const PackageFiles& files) {
  const size_t script = Interprets(command.front()) ? ScriptIndex(command) : 0;
  for (const std::string& path : PathsIn(command)) {
    if (absl::StartsWith(path, "/")) continue;
    const bool is_program = path == command.front();
    const bool is_run = is_program || path == command[script];
    COHORT_RETURN_IF_ERROR(CheckIsFound(path, is_program, is_run, files));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<Package>> Pack(const PackageFlags& flags,
                                            const JobSpec& spec,
                                            bool is_quiet) {
  const bool sends = !flags.working_dir.empty() || !flags.files.empty();
  if (!sends && (!flags.exclude.empty() || flags.no_ignore)) {
    return UsageError(
        "--exclude and --no-ignore choose from what is sent: give "
        "--working-dir or --file too");
  }
  COHORT_ASSIGN_OR_RETURN(
      const PackageFiles files,
      ListPackageFiles({.directory = flags.working_dir,
                        .paths = flags.files,
                        .exclude = flags.exclude,
                        .use_ignore_files = !flags.no_ignore}));
  // In a directory that the nodes have, names mean what is there.
  if (spec.working_directory.empty()) {
    COHORT_RETURN_IF_ERROR(CheckCommand(spec.command, files));
    if (!is_quiet) SayWhenOnPath(spec.command.front());
    for (const std::string& path : PathsIn(spec.command)) {
      if (is_quiet || !IsAbsoluteHere(path)) continue;
      Say(absl::StrCat(path,
                       " is not sent: every node must have it under this name "
                       "(--file sends it, --working-dir . this directory)"));
    }
  }
  if (!sends) return std::nullopt;
  if (!is_quiet) {
    SayLeftOut(files);
    SayWhenLarge(files);
    SayHowToRunSent(files, spec.command.front());
  }
  const MachineClock clock;
  TransferProgress progress("packing", files.size_bytes(), clock,
                            ProgressKind(is_quiet), STDERR_FILENO);
  return Package::Pack(files, {.on_progress = [&progress](int64_t done) {
                         progress.Show(done);
                       }});
}

absl::Status Upload(Cluster& cluster, const Package& package, bool is_quiet) {
  const MachineClock clock;
  TransferProgress progress("uploading", package.size_bytes(), clock,
                            ProgressKind(is_quiet), STDERR_FILENO);
  return cluster.UploadPackage(
      package,
      {.on_progress = [&progress](int64_t done) { progress.Show(done); }});
}

}  // namespace cohort::cli
