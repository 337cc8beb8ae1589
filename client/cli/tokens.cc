#include <sys/stat.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "client/cli/command.h"
#include "client/cli/completion.h"
#include "client/cli/errors.h"
#include "client/cli/table.h"
#include "client/connection.h"
#include "client/json.h"
#include "client/message_text.h"
#include "common/duration_text.h"
#include "common/exit_code.h"
#include "common/printable_text.h"
#include "common/real_clock.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "rpc/credential.h"
#include "rpc/join_token.h"
#include "rpc/role.h"

// `cohort token` and `cohort user`: who is let in (docs/security.md).
namespace cohort::cli {
namespace {

struct TokenFlags {
  std::string name;
  std::string role = "submit";
  std::vector<std::string> namespaces;
  std::string ttl;
  std::string output;
};

// Infinite: none was given.
absl::StatusOr<absl::Duration> ParseTtl(const std::string& text) {
  if (text.empty()) return absl::InfiniteDuration();
  const absl::StatusOr<absl::Duration> ttl = ParseDuration(text);
  if (ttl.ok() && *ttl > absl::ZeroDuration()) return *ttl;
  return UsageError(absl::StrCat(
      "--ttl ", Shown(text), ": ",
      ttl.ok() ? "it is above 0" : std::string(ttl.status().message())));
}

// The new token, with the authority that this client trusts.
absl::StatusOr<rpc::Credential> Create(const Invocation& invocation,
                                       v1::Role role, const TokenFlags& flags,
                                       absl::Duration ttl) {
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<Cluster> cluster,
                          Connect(invocation, kChangeDeadline));
  COHORT_ASSIGN_OR_RETURN(
      const std::string secret,
      cluster->CreateToken(role, flags.name, flags.namespaces, ttl));
  // After it: the answer may have brought the next authority.
  COHORT_ASSIGN_OR_RETURN(const rpc::Credential own,
                          client::FindCredential(invocation.credential_file));
  COHORT_ASSIGN_OR_RETURN(const rpc::Credential made,
                          rpc::Credential::FromBytes(secret));
  return made.For(own.authority());
}

absl::StatusOr<int> CreateJoinToken(const Invocation& invocation,
                                    const TokenFlags& flags) {
  COHORT_ASSIGN_OR_RETURN(const absl::Duration ttl, ParseTtl(flags.ttl));
  COHORT_ASSIGN_OR_RETURN(const rpc::Credential own,
                          client::FindCredential(invocation.credential_file));
  if (own.authority().empty()) {
    return UsageError(
        "this cluster runs with --insecure: nothing joins it by a token");
  }
  COHORT_ASSIGN_OR_RETURN(const rpc::Credential made,
                          Create(invocation, v1::ROLE_JOIN, TokenFlags(), ttl));
  COHORT_RETURN_IF_ERROR(Print(rpc::JoinToken::Of(made).ToText()));
  return kExitOk;
}

// Another's credential, or anything else, is not to be lost.
absl::Status CheckIsFree(const std::string& path) {
  struct stat there;
  if (lstat(path.c_str(), &there) != 0) return absl::OkStatus();
  return absl::AlreadyExistsError(
      absl::StrCat(OneLine(path),
                   " is there already (name another file with --file, or "
                   "remove it)"));
}

absl::StatusOr<int> AddUser(const Invocation& invocation,
                            const TokenFlags& flags) {
  COHORT_ASSIGN_OR_RETURN(const absl::Duration ttl, ParseTtl(flags.ttl));
  const auto role = rpc::RoleNamed(flags.role);
  if (!role.has_value() || !rpc::kReaders.Has(*role)) {
    return UsageError(absl::StrCat("--role ", Shown(flags.role),
                                   ": give admin, submit or read"));
  }
  const std::string path = flags.output.empty()
                               ? absl::StrCat(flags.name, ".credential")
                               : flags.output;
  COHORT_RETURN_IF_ERROR(CheckIsFree(path));
  COHORT_ASSIGN_OR_RETURN(
      const rpc::Credential made,
      Create(invocation, static_cast<v1::Role>(*role), flags, ttl));
  COHORT_RETURN_IF_ERROR(Annotate(
      made.Save(path),
      absl::StrCat("user ", OneLine(flags.name),
                   " is there now, without a file (`cohort user remove` it, "
                   "and add it again)")));
  COHORT_RETURN_IF_ERROR(Print(absl::StrCat(
      "user ", OneLine(flags.name), " may ", flags.role,
      flags.namespaces.empty()
          ? ""
          : absl::StrCat(" in ",
                         OneLine(absl::StrJoin(flags.namespaces, ", "))),
      " with the file ", OneLine(path), " (COHORT_CREDENTIAL_FILE)")));
  return kExitOk;
}

bool IsUser(const Token& token) {
  return rpc::kReaders.Has(static_cast<rpc::Role>(token.role()));
}

std::string NamespacesOf(const Token& token) {
  if (!token.namespaces().empty())
    return absl::StrJoin(token.namespaces(), ",");
  return IsUser(token) ? "all" : "-";
}

std::string TimeOrDash(int64_t at_us) {
  return at_us == 0 ? "-" : TimeText(absl::FromUnixMicros(at_us));
}

std::string StateOf(const Token& token, absl::Time now) {
  if (token.revoked_at_us() != 0) return "REVOKED";
  const bool expired = token.expires_at_us() != 0 &&
                       absl::FromUnixMicros(token.expires_at_us()) <= now;
  return expired ? "EXPIRED" : "VALID";
}

absl::StatusOr<int> List(const Invocation& invocation, bool users_only) {
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<Cluster> cluster,
                          Connect(invocation, kReadDeadline));
  COHORT_ASSIGN_OR_RETURN(const std::vector<Token> tokens,
                          cluster->ListTokens());
  v1::ListTokensResponse shown;
  Table table({"ID", "ROLE", "NAME", "NAMESPACES", "STATE", "EXPIRES",
               "CREATED", "BY"});
  const absl::Time now = MachineClock().Wall();
  for (const Token& token : tokens) {
    if (users_only && !IsUser(token)) continue;
    *shown.add_tokens() = token;
    table.Add({IdText(token.token_id()),
               std::string(rpc::RoleName(static_cast<rpc::Role>(token.role()))),
               token.name().empty() ? "-" : token.name(), NamespacesOf(token),
               StateOf(token, now), TimeOrDash(token.expires_at_us()),
               TimeOrDash(token.created_at_us()), token.created_by()});
  }
  COHORT_RETURN_IF_ERROR(
      invocation.json ? Print(ToJson(shown))
                      : PrintRaw(table.ToString(ViewFor(invocation).columns)));
  return kExitOk;
}

// The one token of which `means` is true.
absl::StatusOr<int> Revoke(const Invocation& invocation,
                           const std::string& named,
                           const std::function<bool(const Token&)>& means) {
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<Cluster> cluster,
                          Connect(invocation, kChangeDeadline));
  COHORT_ASSIGN_OR_RETURN(const std::vector<Token> tokens,
                          cluster->ListTokens());
  const Token* found = nullptr;
  for (const Token& token : tokens) {
    if (!means(token)) continue;
    if (found != nullptr) {
      return UsageError(absl::StrCat(Shown(named),
                                     " is the beginning of more "
                                     "than one id: give more"));
    }
    found = &token;
  }
  if (found == nullptr) {
    return SetReason(
        absl::NotFoundError(absl::StrCat("there is no ", OneLine(named),
                                         " (`cohort token list` shows them)")),
        "unknown_token");
  }
  COHORT_ASSIGN_OR_RETURN(const Token revoked,
                          cluster->RevokeToken(found->token_id()));
  COHORT_RETURN_IF_ERROR(Print(absl::StrCat(
      "token ", IdText(revoked.token_id()), " (",
      rpc::RoleName(static_cast<rpc::Role>(revoked.role())),
      revoked.name().empty() ? "" : absl::StrCat(" ", OneLine(revoked.name())),
      ") is revoked")));
  return kExitOk;
}

void AddTtl(CLI::App& command, TokenFlags& flags, const char* otherwise) {
  command
      .add_option("--ttl", flags.ttl,
                  absl::StrCat("How long it is valid, as 24h (default: ",
                               otherwise, ")"))
      ->option_text("T");
}

}  // namespace

void AddTokens(CLI::App& cohort, Invocation& invocation) {
  auto flags = std::make_shared<TokenFlags>();
  auto id = std::make_shared<std::string>();

  CLI::App* const token = cohort.add_subcommand(
      "token", "Create join tokens for machines; list and revoke credentials");
  token->require_subcommand(1);
  CLI::App* const create =
      AddCommand(*token, "create", "Print a token for `cohort worker --join`",
                 invocation, [&invocation, flags] {
                   if (flags->ttl.empty()) flags->ttl = "24h";
                   return CreateJoinToken(invocation, *flags);
                 });
  AddTtl(*create, *flags, "24h");
  CLI::App* const list = AddCommand(
      *token, "list", "List join tokens, nodes and users", invocation,
      [&invocation] { return List(invocation, /*users_only=*/false); });
  AddOutputFlags(*list, invocation);
  CLI::App* const revoke = AddCommand(
      *token, "revoke",
      "Revoke a token, or the credential of a "
      "node or user",
      invocation, [&invocation, id] {
        return Revoke(invocation, "token " + *id, [id](const Token& each) {
          return absl::StartsWith(IdText(each.token_id()), *id);
        });
      });
  revoke
      ->add_option("ID", *id, "An id of `cohort token list`, or its beginning")
      ->required();

  CLI::App* const user =
      cohort.add_subcommand("user",
                            "Add, list and remove users, each with a "
                            "role");
  user->require_subcommand(1);
  CLI::App* const add =
      AddCommand(*user, "add", "Make a credential file for a user", invocation,
                 [&invocation, flags] { return AddUser(invocation, *flags); });
  add->add_option("NAME", flags->name, "The name that events and jobs show")
      ->required();
  OfferValues(add->add_option("--role", flags->role,
                              "admin: everything; submit: run, change and read "
                              "jobs; read: read")
                  ->capture_default_str(),
              {"admin", "submit", "read"});
  add->add_option("--namespaces", flags->namespaces,
                  "Sees and changes the jobs of these alone (default: of all)")
      ->option_text("NAME[,NAME]...")
      ->delimiter(',');
  AddTtl(*add, *flags, "until it is removed");
  add->add_option("--file", flags->output,
                  "Where to write it (default: NAME.credential)")
      ->option_text("FILE");
  CLI::App* const users = AddCommand(
      *user, "list", "List users", invocation,
      [&invocation] { return List(invocation, /*users_only=*/true); });
  AddOutputFlags(*users, invocation);
  CLI::App* const remove = AddCommand(
      *user, "remove", "Remove a user, whose credential is then refused",
      invocation, [&invocation, flags] {
        return Revoke(invocation, absl::StrCat("user ", flags->name),
                      [flags](const Token& each) {
                        return IsUser(each) && each.name() == flags->name &&
                               each.revoked_at_us() == 0;
                      });
      });
  remove->add_option("NAME", flags->name, "The user")->required();
}

}  // namespace cohort::cli
