#include "client/package_files.h"

#include <dirent.h>
#include <limits.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

#include "client/ignore_rules.h"
#include "common/file.h"
#include "common/link_target.h"
#include "common/status_macros.h"
#include "common/status_util.h"

namespace cohort {
namespace {

using client::IgnoreRules;

constexpr absl::string_view kDefaultRules = ".git\n.venv\n__pycache__";
// What `python3 -m venv` writes into each that it makes, whatever its name.
constexpr absl::string_view kVenvFile = "pyvenv.cfg";
// The largest known ones have a few hundred lines.
constexpr size_t kIgnoreFileBytesMax = 1 << 20;

absl::string_view KindOf(mode_t mode) {
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

absl::StatusOr<std::vector<std::string>> SortedNames(const std::string& path) {
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(opendir(path.c_str()),
                                                      &closedir);
  if (directory == nullptr) return CannotPack(path, errno);
  std::vector<std::string> names;
  for (;;) {
    errno = 0;
    const dirent* entry = readdir(directory.get());
    if (entry == nullptr) break;
    const absl::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  if (errno != 0) return CannotPack(path, errno);
  std::sort(names.begin(), names.end());
  return names;
}

// The last part of `path`: what it is called in a package.
absl::StatusOr<std::string> NameOf(absl::string_view path) {
  absl::string_view name = path;
  while (absl::ConsumeSuffix(&name, "/")) {
  }
  name = name.substr(name.rfind('/') + 1);
  if (name.empty() || name == "." || name == "..") {
    return CannotPack(path,
                      "it ends in no name; send what is in a directory with "
                      "--working-dir");
  }
  return std::string(name);
}

// The rules that hold below a directory.
struct Rules {
  const Rules* above;  // weaker ones; null: none
  std::string file;    // empty: the defaults
  size_t prefix;       // bytes of a name before what they are about
  IgnoreRules rules;
  std::string lead;  // of names, where they are about a directory above all
};

// The directories above `directory` up to the root of the git repository that
// it is in, that first; none where it is in none, or its root.
std::vector<std::filesystem::path> AboveInRepository(
    const std::string& directory) {
  std::vector<std::filesystem::path> above;
  std::error_code error;
  std::filesystem::path at = std::filesystem::canonical(directory, error);
  while (!error && !std::filesystem::exists(at / ".git", error)) {
    if (at == at.parent_path()) return {};
    at = at.parent_path();
    above.insert(above.begin(), at);
  }
  return error ? std::vector<std::filesystem::path>() : above;
}

class PackageLister {
 public:
  PackageLister(const PackageSource& source, size_t entries_max)
      : use_ignore_files_(source.use_ignore_files), entries_max_(entries_max) {
    if (use_ignore_files_) defaults_.rules = IgnoreRules(kDefaultRules);
    for (const std::string& pattern : source.exclude) exclude_.Add(pattern);
  }

  // All that is in the directory, if there is one, and what is named beside it.
  absl::Status AddTop(const PackageSource& source) {
    const std::string& directory = source.directory;
    std::map<std::string, std::string> named = source.named;
    for (const std::string& path : source.paths) {
      COHORT_ASSIGN_OR_RETURN(const std::string name, NameOf(path));
      const auto [other, is_new] = named.try_emplace(name, path);
      if (!is_new) COHORT_RETURN_IF_ERROR(CheckSame(name, path, other->second));
    }
    std::vector<std::string> names;
    if (!directory.empty()) {
      COHORT_ASSIGN_OR_RETURN(names, SortedNames(directory));
    }
    COHORT_ASSIGN_OR_RETURN(const Rules* const above, ReadAbove(directory));
    COHORT_ASSIGN_OR_RETURN(const std::optional<Rules> own,
                            ReadRules(directory, names, "", above));
    std::set<std::string> all(names.begin(), names.end());
    for (const auto& [name, path] : named) {
      if (all.insert(name).second) continue;
      COHORT_RETURN_IF_ERROR(
          CheckSame(name, path, absl::StrCat(directory, "/", name)));
    }
    for (const std::string& name : all) {
      const auto given = named.find(name);
      COHORT_RETURN_IF_ERROR(
          given != named.end()
              ? AddNamed(given->second, name)
              : AddBelow(directory, "", name, 0, own ? &*own : above));
    }
    LeaveOutLinks();
    return absl::OkStatus();
  }

  PackageFiles TakeFiles() { return std::move(files_); }

 private:
  // That two paths for one name in the package mean the same file.
  static absl::Status CheckSame(const std::string& name,
                                const std::string& path,
                                const std::string& other) {
    struct stat one;
    struct stat two;
    if (stat(path.c_str(), &one) != 0) return CannotPack(path, errno);
    if (stat(other.c_str(), &two) != 0) return CannotPack(other, errno);
    if (one.st_dev == two.st_dev && one.st_ino == two.st_ino) {
      return absl::OkStatus();
    }
    return CannotPack(path, absl::StrCat(other, " has the same name, ", name,
                                         "; rename one of them"));
  }

  // The rules above `directory` that git would apply to what is in it.
  absl::StatusOr<const Rules*> ReadAbove(const std::string& directory) {
    const Rules* above = &defaults_;
    if (directory.empty() || !use_ignore_files_) return above;
    const auto directories = AboveInRepository(directory);
    std::error_code error;
    const auto here = std::filesystem::canonical(directory, error);
    for (const std::filesystem::path& each : directories) {
      const std::string up = each.lexically_relative(here).string() + "/";
      COHORT_ASSIGN_OR_RETURN(
          std::optional<Rules> rules,
          ReadRules(each, {".cohortignore", ".gitignore"}, up, above));
      if (!rules.has_value()) continue;
      rules->prefix = 0;
      rules->lead = here.lexically_relative(each).string() + "/";
      above = &above_.emplace_back(*std::move(rules));
    }
    return above;
  }

  // Links to what is left out would lead nowhere.
  void LeaveOutLinks() {
    std::map<std::string, std::string> why;
    for (const auto& each : files_.left_out) why[each.name] = each.why;
    const auto is_left_out = [&](const PackageFiles::Entry& entry) {
      if (entry.link.empty()) return false;
      std::filesystem::path target =
          (std::filesystem::path(entry.name).parent_path() / entry.link)
              .lexically_normal();
      for (; target.has_relative_path(); target = target.parent_path()) {
        const auto found = why.find(target);
        if (found == why.end()) continue;
        files_.left_out.push_back(
            {entry.name, absl::StrCat("its link to ", found->first,
                                      ", left out by ", found->second)});
        return true;
      }
      return false;
    };
    // Again for links to those links.
    for (size_t before = 0; before != files_.left_out.size();) {
      before = files_.left_out.size();
      std::erase_if(files_.entries, is_left_out);
      for (const auto& each : files_.left_out) why[each.name] = each.why;
    }
  }

  absl::Status AddNamed(const std::string& path, const std::string& name) {
    struct stat info;
    if (stat(path.c_str(), &info) != 0) return CannotPack(path, errno);
    return Add(path, name, name.size() + 1, info, &defaults_);
  }

  // What is in the directory `path`, below `prefix`, "a/b/".  Its tree begins
  // after `root` bytes of the names.
  absl::Status AddTree(const std::string& path, const std::string& prefix,
                       size_t root, const Rules* above) {
    COHORT_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                            SortedNames(path));
    COHORT_ASSIGN_OR_RETURN(const std::optional<Rules> own,
                            ReadRules(path, names, prefix, above));
    for (const std::string& name : names) {
      COHORT_RETURN_IF_ERROR(
          AddBelow(path, prefix, name, root, own ? &*own : above));
    }
    return absl::OkStatus();
  }

  absl::Status AddBelow(const std::string& directory, const std::string& prefix,
                        const std::string& name, size_t root,
                        const Rules* rules) {
    const std::string path = absl::StrCat(directory, "/", name);
    const std::string full = prefix + name;
    struct stat info;
    if (lstat(path.c_str(), &info) != 0) return CannotPack(path, errno);
    std::optional<std::string> why =
        WhyLeftOut(path, full, S_ISDIR(info.st_mode), rules);
    if (!why.has_value()) return Add(path, full, root, info, rules);
    files_.left_out.push_back({full, *std::move(why)});
    return absl::OkStatus();
  }

  absl::Status Add(const std::string& path, const std::string& name,
                   size_t root, const struct stat& info, const Rules* rules) {
    if (files_.entries.size() >= entries_max_) {
      return CannotPack(
          path, absl::StrCat("there are more than ", entries_max_,
                             " files and directories; leave some out with "
                             "--exclude, or share the directory"));
    }
    PackageFiles::Entry entry = {.name = name, .path = path, .info = info};
    if (S_ISLNK(info.st_mode)) {
      COHORT_ASSIGN_OR_RETURN(
          entry.link, ReadLink(path, absl::string_view(name).substr(root)));
    } else if (!S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode)) {
      return CannotPack(path, absl::StrCat("it is ", KindOf(info.st_mode),
                                           "; leave it out with --exclude"));
    }
    files_.entries.push_back(std::move(entry));
    if (!S_ISDIR(info.st_mode)) return absl::OkStatus();
    return AddTree(path, name + "/", root, rules);
  }

  // What an absolute link into the tree of `name` means, seen from the link;
  // others as they are.
  static std::string Relative(const std::string& target,
                              const std::string& path, absl::string_view name) {
    if (!absl::StartsWith(target, "/") || !absl::EndsWith(path, name)) {
      return target;
    }
    std::error_code error;
    const std::filesystem::path link =
        std::filesystem::absolute(path, error).lexically_normal();
    const std::filesystem::path top =
        std::filesystem::absolute(path.substr(0, path.size() - name.size()),
                                  error)
            .lexically_normal();
    const auto below =
        std::filesystem::path(target).lexically_normal().lexically_relative(
            top);
    if (below.empty() || *below.begin() == "..") return target;
    return (top / below).lexically_relative(link.parent_path()).string();
  }

  // `name` is the link's below the top of its tree.
  static absl::StatusOr<std::string> ReadLink(const std::string& path,
                                              absl::string_view name) {
    std::string target(PATH_MAX, '\0');
    const ssize_t size = readlink(path.c_str(), target.data(), target.size());
    if (size < 0) return CannotPack(path, errno);
    target.resize(static_cast<size_t>(size));
    const std::string what =
        absl::StrCat("it is a link to ", absl::Utf8SafeCEscape(target));
    struct stat info;
    if (stat(path.c_str(), &info) != 0 && errno == ELOOP) {
      return CannotPack(path, absl::StrCat(what,
                                           " and leads in a circle; remove it "
                                           "or leave it out with --exclude"));
    }
    target = Relative(target, path, name);
    const auto depth = std::count(name.begin(), name.end(), '/');
    if (StaysInTree(target, static_cast<size_t>(depth))) return target;
    return CannotPack(
        path, absl::StrCat(what,
                           ", outside of what is packed; put what it names in "
                           "its place (cp -L), make it relative if that is "
                           "packed too, or leave it out with --exclude"));
  }

  // Those of an ignore file in the directory `path`, which has `names`.
  absl::StatusOr<std::optional<Rules>> ReadRules(
      const std::string& path, const std::vector<std::string>& names,
      const std::string& prefix, const Rules* above) const {
    if (!use_ignore_files_) return std::nullopt;
    for (const char* name : {".cohortignore", ".gitignore"}) {
      const std::string file = absl::StrCat(path, "/", name);
      std::error_code error;
      if (!std::binary_search(names.begin(), names.end(), name) ||
          !std::filesystem::is_regular_file(file, error)) {
        continue;
      }
      const absl::StatusOr<std::string> text =
          ReadFile(file, kIgnoreFileBytesMax);
      if (!text.ok()) return CannotPack(file, text.status().message());
      return Rules{.above = above,
                   .file = prefix + name,
                   .prefix = prefix.size(),
                   .rules = IgnoreRules(*text),
                   .lead = ""};
    }
    return std::nullopt;
  }

  // What leaves `name`, which is at `path`, out; nothing when it stays in.
  std::optional<std::string> WhyLeftOut(const std::string& path,
                                        absl::string_view name,
                                        bool is_directory,
                                        const Rules* rules) const {
    if (const auto* rule = exclude_.Find(name, is_directory)) {
      if (rule->is_negated) return std::nullopt;
      return absl::StrCat("--exclude ", rule->text);
    }
    for (; rules != nullptr; rules = rules->above) {
      const auto* rule = rules->rules.Find(
          absl::StrCat(rules->lead, name.substr(rules->prefix)), is_directory);
      if (rule == nullptr) continue;
      if (rule->is_negated) return std::nullopt;
      if (rules->file.empty()) return std::string("a default");
      return absl::StrCat(rules->file, " line ", rule->line, ", ", rule->text);
    }
    std::error_code error;
    if (use_ignore_files_ && is_directory &&
        std::filesystem::exists(absl::StrCat(path, "/", kVenvFile), error)) {
      return "a default, as a Python venv";
    }
    return std::nullopt;
  }

  const bool use_ignore_files_;
  const size_t entries_max_;
  IgnoreRules exclude_;
  Rules defaults_ = {};
  std::deque<Rules> above_;  // from the repository's root down
  PackageFiles files_;
};

}  // namespace

int64_t PackageFiles::size_bytes() const {
  int64_t sum = 0;
  for (const Entry& entry : entries) sum += entry.size_bytes();
  return sum;
}

absl::StatusOr<PackageFiles> ListPackageFiles(const PackageSource& source,
                                              size_t entries_max) {
  struct stat info;
  const std::string& directory = source.directory;
  if (!directory.empty() && stat(directory.c_str(), &info) == 0 &&
      !S_ISDIR(info.st_mode)) {
    return CannotPack(directory,
                      "it is not a directory; send a file with --file");
  }
  PackageLister lister(source, entries_max);
  COHORT_RETURN_IF_ERROR(lister.AddTop(source));
  return lister.TakeFiles();
}

absl::Status CannotPack(absl::string_view path, absl::string_view why) {
  return SetReason(absl::InvalidArgumentError(absl::StrCat(
                       "cannot pack ", absl::Utf8SafeCEscape(path), ": ", why)),
                   "cannot_pack");
}

absl::Status CannotPack(absl::string_view path, int error_number) {
  return CannotPack(
      path, absl::StrCat(std::strerror(error_number),
                         error_number == ENOENT
                             ? "; check the name"
                             : "; make it readable or leave it out with "
                               "--exclude"));
}

}  // namespace cohort
