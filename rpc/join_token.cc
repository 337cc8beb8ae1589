#include "rpc/join_token.h"

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "common/hex_text.h"
#include "rpc/certificate.h"

namespace cohort::rpc {
namespace {

constexpr absl::string_view kVersion = "cohort1";
constexpr size_t kFingerprintDigits = 64;
constexpr size_t kIdDigits = 2 * Credential::kTokenIdBytes;
constexpr size_t kSecretDigits = 2 * Credential::kClusterBytes;

absl::Status NotAToken(absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(
      "this is not a join token: ", why,
      " (copy the whole line that `cohort token create` printed)"));
}

bool IsHex(absl::string_view text) {
  for (const char c : text) {
    if (!absl::ascii_isxdigit(static_cast<unsigned char>(c))) return false;
  }
  return true;
}

}  // namespace

absl::StatusOr<JoinToken> JoinToken::Parse(absl::string_view text) {
  const std::vector<std::string> parts =
      absl::StrSplit(absl::StripAsciiWhitespace(text), '.');
  if (parts[0] != kVersion) return NotAToken("it does not begin with cohort1.");
  if (parts.size() != 4) {
    return NotAToken(
        absl::StrCat("it has ", parts.size(), " parts in place of 4"));
  }
  const size_t sizes[] = {kFingerprintDigits, kIdDigits, kSecretDigits};
  for (size_t i = 1; i < parts.size(); ++i) {
    if (parts[i].size() != sizes[i - 1] || !IsHex(parts[i])) {
      return NotAToken(absl::StrCat("part ", i + 1, " is not ", sizes[i - 1],
                                    " hex digits, it is cut short or damaged"));
    }
  }
  return JoinToken{.fingerprint = absl::AsciiStrToLower(parts[1]),
                   .token = HexToBytes(parts[2] + parts[3])};
}

JoinToken JoinToken::Of(const Credential& token) {
  return {.fingerprint = FingerprintOf(token.authority()).value(),
          .token = token.bytes()};
}

std::string JoinToken::ToText() const {
  const absl::string_view bytes = token;
  return absl::StrCat(
      kVersion, ".", fingerprint, ".",
      absl::BytesToHexString(bytes.substr(0, Credential::kTokenIdBytes)), ".",
      absl::BytesToHexString(bytes.substr(Credential::kTokenIdBytes)));
}

}  // namespace cohort::rpc
