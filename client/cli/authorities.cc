#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

#include "client/cli/command.h"
#include "client/cli/errors.h"
#include "client/cli/table.h"
#include "client/connection.h"
#include "client/message_text.h"
#include "common/exit_code.h"
#include "common/host_port.h"
#include "common/printable_text.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "rpc/credential.h"
#include "rpc/fetch_authority.h"

// `cohort authority`: by which certificate clients know the head, and how that
// is changed (docs/security.md).
namespace cohort::cli {
namespace {

// Nodes that are connected have it within a moment.
constexpr absl::Duration kNodesTime = absl::Seconds(3);
constexpr absl::Duration kNodesPoll = absl::Milliseconds(50);
constexpr absl::Duration kFetchTimeout = absl::Seconds(15);

absl::Status PrintNodesWithout(const AuthorityList& all) {
  for (const std::string& node : all.nodes_without()) {
    COHORT_RETURN_IF_ERROR(Print(
        absl::StrCat("node ", OneLine(node), " does not have the next yet")));
  }
  return absl::OkStatus();
}

absl::StatusOr<int> ListAuthorities(const Invocation& invocation, bool pem) {
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<Cluster> cluster,
                          Connect(invocation, kReadDeadline));
  COHORT_ASSIGN_OR_RETURN(const AuthorityList all, cluster->Authorities());
  if (invocation.json) {
    COHORT_RETURN_IF_ERROR(Print(ToJson(all)));
    return kExitOk;
  }
  Table table({"FINGERPRINT", "STATE"});
  for (const auto& each : all.authorities()) {
    if (pem) COHORT_RETURN_IF_ERROR(PrintRaw(each.certificate()));
    table.Add({each.fingerprint(), each.next() ? "NEXT" : "CURRENT"});
  }
  if (pem) return kExitOk;
  COHORT_RETURN_IF_ERROR(PrintRaw(table.ToString(ViewFor(invocation).columns)));
  COHORT_RETURN_IF_ERROR(PrintNodesWithout(all));
  return kExitOk;
}

// Empty: there is none.
std::string NextOf(const AuthorityList& all) {
  for (const auto& each : all.authorities()) {
    if (each.next()) return each.fingerprint();
  }
  return "";
}

absl::StatusOr<int> BeginRotation(const Invocation& invocation) {
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<Cluster> cluster,
                          Connect(invocation, kChangeDeadline));
  COHORT_ASSIGN_OR_RETURN(AuthorityList all, cluster->RotateAuthority());
  for (absl::Duration waited;
       all.nodes_without_size() > 0 && waited < kNodesTime;
       waited += kNodesPoll) {
    // NOLINT(cohort-sleep): the head answers at once, nodes a moment later
    absl::SleepFor(kNodesPoll);
    COHORT_ASSIGN_OR_RETURN(all, cluster->Authorities());
  }
  COHORT_RETURN_IF_ERROR(
      Print(absl::StrCat("nodes and clients change to authority ", NextOf(all),
                         "; once they have it: cohort authority finish")));
  COHORT_RETURN_IF_ERROR(PrintNodesWithout(all));
  return kExitOk;
}

absl::StatusOr<int> EndRotation(const Invocation& invocation, bool force) {
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<Cluster> cluster,
                          Connect(invocation, kChangeDeadline));
  COHORT_ASSIGN_OR_RETURN(const AuthorityList all, cluster->Authorities());
  const std::string next = NextOf(all);
  if (next.empty()) {
    return SetReason(
        absl::FailedPreconditionError(
            "no rotation goes on (`cohort authority rotate` begins one)"),
        "no_rotation");
  }
  COHORT_RETURN_IF_ERROR(cluster->FinishRotation(next, force).status());
  COHORT_RETURN_IF_ERROR(
      Print(absl::StrCat("the head is known by authority ", next, " alone")));
  return kExitOk;
}

absl::StatusOr<int> TrustAuthority(const Invocation& invocation,
                                   const std::string& fingerprint) {
  COHORT_ASSIGN_OR_RETURN(const std::string text,
                          client::FindAddress(invocation.address));
  COHORT_ASSIGN_OR_RETURN(const HostPort address, ParseHostPort(text));
  COHORT_ASSIGN_OR_RETURN(const rpc::Credential credential,
                          client::FindCredential(invocation.credential_file));
  COHORT_ASSIGN_OR_RETURN(
      const std::string authority,
      rpc::FetchAuthority(address, fingerprint, kFetchTimeout));
  COHORT_RETURN_IF_ERROR(rpc::RenewAuthority(credential, authority));
  COHORT_RETURN_IF_ERROR(
      Print(absl::StrCat(OneLine(credential.file()), " knows the head at ",
                         text, " by authority ", fingerprint)));
  return kExitOk;
}

}  // namespace

void AddAuthorities(CLI::App& cohort, Invocation& invocation) {
  auto pem = std::make_shared<bool>(false);
  auto force = std::make_shared<bool>(false);
  auto fingerprint = std::make_shared<std::string>();
  CLI::App* const authority = cohort.add_subcommand(
      "authority",
      "List and rotate the certificate authority by which clients know the "
      "head");
  authority->require_subcommand(1);
  CLI::App* const list = AddCommand(
      *authority, "list",
      "List the authority, and the next while a rotation goes on", invocation,
      [&invocation, pem] { return ListAuthorities(invocation, *pem); });
  list->add_flag("--pem", *pem, "Print the certificates");
  AddOutputFlags(*list, invocation);
  AddCommand(*authority, "rotate",
             "Begin a rotation: nodes and clients change to another authority "
             "as they go on",
             invocation, [&invocation] { return BeginRotation(invocation); });
  CLI::App* const finish = AddCommand(
      *authority, "finish",
      "Finish it: credentials that still have the old authority are refused",
      invocation,
      [&invocation, force] { return EndRotation(invocation, *force); });
  finish->add_flag("--force", *force,
                   "Although nodes do not have the next authority yet");
  CLI::App* const trust = AddCommand(
      *authority, "trust",
      "Let a credential that was away during a rotation know the head by the "
      "authority with this fingerprint",
      invocation, [&invocation, fingerprint] {
        return TrustAuthority(invocation, *fingerprint);
      });
  trust
      ->add_option("FINGERPRINT", *fingerprint,
                   "As an admin sees it in `cohort authority list`")
      ->required();
}

}  // namespace cohort::cli
