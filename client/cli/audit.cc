#include <cstdint>
#include <deque>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"

#include "client/cli/command.h"
#include "client/cli/errors.h"
#include "client/cli/table.h"
#include "client/json.h"
#include "client/message_text.h"
#include "common/exit_code.h"
#include "common/printable_text.h"
#include "common/real_clock.h"
#include "common/since_text.h"
#include "common/status_macros.h"
#include "rpc/role.h"

// `cohort audit`: who changed what, and who was refused (docs/security.md).
namespace cohort::cli {
namespace {

struct AuditFlags {
  std::string since;
  std::string principal;
  int64_t tail = 0;
};

std::string WhatOf(const AuditEntry& entry) {
  const std::string job =
      entry.job_id().empty() ? "" : "job=" + IdText(entry.job_id());
  return absl::StrCat(job, job.empty() || entry.what().empty() ? "" : " ",
                      entry.what());
}

std::string ResultOf(const AuditEntry& entry) {
  return absl::StrCat(
      entry.result(),
      entry.count() > 1 ? absl::StrCat(" x", entry.count()) : "",
      entry.text().empty() ? "" : absl::StrCat(" (", entry.text(), ")"));
}

absl::StatusOr<int> RunAudit(const Invocation& invocation,
                             const AuditFlags& flags) {
  absl::Time since = absl::InfinitePast();
  if (!flags.since.empty()) {
    const absl::StatusOr<absl::Time> parsed =
        ParseSince(flags.since, MachineClock().Wall());
    if (!parsed.ok()) return FlagError("--since", parsed.status());
    since = *parsed;
  }
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<Cluster> cluster,
                          Connect(invocation, kReadDeadline));
  std::deque<AuditEntry> entries;
  COHORT_RETURN_IF_ERROR(cluster->Audit(
      since, flags.principal, [&entries, &flags](const AuditEntry& entry) {
        entries.push_back(entry);
        if (flags.tail > 0 &&
            static_cast<int64_t>(entries.size()) > flags.tail) {
          entries.pop_front();
        }
      }));
  std::string lines;
  Table table({"TIME", "PRINCIPAL", "ROLE", "FROM", "CALL", "WHAT", "RESULT"});
  for (const AuditEntry& entry : entries) {
    if (invocation.json) {
      absl::StrAppend(&lines, ToJsonLine(entry), "\n");
      continue;
    }
    table.Add(
        {TimeText(entry.at()), OneLine(entry.principal()),
         entry.role() == v1::ROLE_UNSPECIFIED
             ? "-"
             : std::string(rpc::RoleName(static_cast<rpc::Role>(entry.role()))),
         OneLine(entry.peer()), entry.method(), OneLine(WhatOf(entry)),
         OneLine(ResultOf(entry))});
  }
  COHORT_RETURN_IF_ERROR(PrintRaw(
      invocation.json ? lines : table.ToString(ViewFor(invocation).columns)));
  return kExitOk;
}

}  // namespace

void AddAudit(CLI::App& cohort, Invocation& invocation) {
  auto flags = std::make_shared<AuditFlags>();
  CLI::App* const audit = AddCommand(
      cohort, "audit", "Show who changed what, and who was refused", invocation,
      [&invocation, flags] { return RunAudit(invocation, *flags); });
  audit
      ->add_option("--since", flags->since,
                   "Only calls since then: a duration, as 10m, or a time, as "
                   "2026-11-21T10:00:00Z (default: all that is kept)")
      ->option_text("T");
  audit
      ->add_option("--principal", flags->principal,
                   "Only of this one, as ann, user/ann or nobody")
      ->option_text("NAME");
  audit->add_option("--tail", flags->tail, "Only the last N")
      ->option_text("N")
      ->check(CLI::PositiveNumber);
  AddOutputFlags(*audit, invocation);
}

}  // namespace cohort::cli
