#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

#include "client/cli/command.h"
#include "client/cli/errors.h"
#include "client/json.h"
#include "common/exit_code.h"
#include "common/printable_text.h"
#include "common/status_macros.h"

namespace cohort::cli {
namespace {

// A large store on a slow disk; the head goes on with it in any case.
constexpr absl::Duration kBackupDeadline = absl::Minutes(30);

absl::StatusOr<int> Backup(const Invocation& invocation,
                           const std::string& directory) {
  if (directory.empty()) {
    return UsageError(
        "DIR is empty: name a new directory of the head's machine");
  }
  std::error_code error;
  std::string absolute =
      std::filesystem::absolute(directory, error).lexically_normal().string();
  if (error) {
    return UsageError(
        absl::StrCat("DIR ", OneLine(directory), ": ", error.message()));
  }
  while (absolute.size() > 1 && absolute.back() == '/') absolute.pop_back();
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<Cluster> cluster,
                          Connect(invocation, kReadDeadline));
  COHORT_ASSIGN_OR_RETURN(const BackupSummary summary,
                          cluster->BackupStore(absolute, kBackupDeadline));
  if (invocation.json) {
    COHORT_RETURN_IF_ERROR(Print(BackupJson(absolute, summary)));
    return kExitOk;
  }
  for (const std::string& hash : summary.missing_packages()) {
    std::fprintf(stderr,
                 "cohort: package %s, which jobs need, could not be read and "
                 "is not in the backup\n",
                 absl::BytesToHexString(hash).c_str());
  }
  COHORT_RETURN_IF_ERROR(
      Print(absl::StrCat(OneLine(absolute), ": ", summary.files(), " files, ",
                         summary.size_bytes(), " bytes")));
  return kExitOk;
}

}  // namespace

void AddHead(CLI::App& cohort, Invocation& invocation) {
  CLI::App* head = cohort.add_subcommand(
      "head",
      "Run the head daemon (cohort-head); back up, restore, check or inspect "
      "its store");
  auto directory = std::make_shared<std::string>();
  CLI::App* backup = AddCommand(
      *head, "backup", "Back up the store of the head that runs", invocation,
      [&invocation, directory] { return Backup(invocation, *directory); });
  backup
      ->add_option("DIR", *directory,
                   "A new directory of the head's machine; its parent exists")
      ->required();
  AddJsonFlag(*backup, invocation);
  backup->footer(
      "The head writes DIR, as its own user, and goes on meanwhile. It has the "
      "store, the credential and the packages of jobs that have not ended: "
      "keep it as secret as the credential. `cohort head restore DIR "
      "--state-dir NEW` makes a state directory of it.");
}

}  // namespace cohort::cli
