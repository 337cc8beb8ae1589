#include "rpc/credential.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "openssl/evp.h"
#include "openssl/hmac.h"

#include "common/check.h"
#include "common/file.h"
#include "common/hex_text.h"
#include "common/process_id.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "rpc/certificate.h"

namespace cohort::rpc {
namespace {

// Separate these uses of a secret from each other and from any later one.
constexpr absl::string_view kRankContext = "cohort rank 1";
constexpr absl::string_view kTokenContext = "cohort token 1";

std::string Signature(absl::string_view secret, absl::string_view context,
                      absl::string_view what) {
  const std::string text = absl::StrCat(context, what);
  unsigned char mac[EVP_MAX_MD_SIZE];
  unsigned int mac_bytes = 0;
  const unsigned char* const result =
      HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
           reinterpret_cast<const unsigned char*>(text.data()), text.size(),
           mac, &mac_bytes);
  COHORT_CHECK(result != nullptr && mac_bytes == Credential::kClusterBytes);
  return std::string(reinterpret_cast<const char*>(mac), mac_bytes);
}

std::string BigEndian(uint64_t number, size_t bytes) {
  std::string text(bytes, '\0');
  for (size_t i = bytes; i-- > 0; number >>= 8) {
    text[i] = static_cast<char>(number & 0xff);
  }
  return text;
}

uint64_t FromBigEndian(absl::string_view bytes) {
  uint64_t number = 0;
  for (const char byte : bytes) {
    number = number << 8 | static_cast<unsigned char>(byte);
  }
  return number;
}

// The owner alone may read it, and it is ours.
absl::Status CheckFile(int fd, const std::string& path) {
  struct stat info;
  if (fstat(fd, &info) != 0) return ErrnoStatus(errno, "stat " + path);
  if (!S_ISREG(info.st_mode)) {
    return absl::FailedPreconditionError(absl::StrCat(
        path, " is not a regular file: name the credential file itself"));
  }
  if (info.st_uid != geteuid()) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "the credential %s belongs to user %d and this is user %d: run as its "
        "owner, or copy it and chown the copy",
        path, info.st_uid, geteuid()));
  }
  if ((info.st_mode & 0077) != 0) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "the credential %s has mode %04o, so others can read or change it: "
        "chmod 600 %s",
        path, info.st_mode & 07777, path));
  }
  return absl::OkStatus();
}

// A credential is some 800 bytes.
constexpr size_t kTextBytesMax = 16 << 10;
constexpr absl::string_view kSecretLine = "secret ";

// Everything, up to one byte more than any credential has.
absl::StatusOr<std::string> ReadAll(int fd, const std::string& path) {
  std::string bytes(kTextBytesMax + 1, '\0');
  size_t have = 0;
  while (have < bytes.size()) {
    const ssize_t n = read(fd, bytes.data() + have, bytes.size() - have);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, "read " + path);
    if (n == 0) break;
    have += static_cast<size_t>(n);
  }
  bytes.resize(have);
  return bytes;
}

}  // namespace

absl::StatusOr<Credential> Credential::FromBytes(absl::string_view bytes) {
  for (const size_t size :
       {kClusterBytes, kTokenBytes, kRankBytes, kTokenRankBytes}) {
    if (bytes.size() == size) return Credential(std::string(bytes));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("no credential has ", bytes.size(), " bytes"));
}

absl::StatusOr<Credential> Credential::FromHex(absl::string_view hex) {
  if (hex.size() % 2 != 0 || hex.size() > 2 * kTokenRankBytes ||
      !std::all_of(hex.begin(), hex.end(), [](unsigned char c) {
        return absl::ascii_isxdigit(c) && !absl::ascii_isupper(c);
      })) {
    return absl::InvalidArgumentError("a credential is lower-case hex digits");
  }
  return FromBytes(HexToBytes(hex));
}

absl::StatusOr<Credential> Credential::Load(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0 && errno == ENOENT) {
    return absl::NotFoundError(absl::StrCat(
        "there is no credential file ", path,
        ": name the cluster's with --credential-file or "
        "COHORT_CREDENTIAL_FILE (the head makes it at its first start)"));
  }
  if (fd < 0 && (errno == EACCES || errno == EPERM)) {
    return absl::PermissionDeniedError(absl::StrCat(
        "user ", geteuid(), " may not read the credential ", path,
        ": run as its owner, or give this user a copy (mode 0600)"));
  }
  if (fd < 0) return ErrnoStatus(errno, "open the credential " + path);
  const absl::Cleanup close_fd = [fd] { close(fd); };

  COHORT_RETURN_IF_ERROR(CheckFile(fd, path));
  COHORT_ASSIGN_OR_RETURN(const std::string text, ReadAll(fd, path));
  absl::StatusOr<Credential> credential = FromText(text);
  if (!credential.ok()) {
    return absl::DataLossError(
        absl::StrCat("the credential file ", path, " is damaged (",
                     credential.status().message(),
                     "): copy it again from the head's state directory"));
  }
  credential->file_ = path;
  return credential;
}

absl::Status RenewAuthority(const Credential& held,
                            const std::string& authority) {
  COHORT_RETURN_IF_ERROR(FingerprintOf(authority).status());
  if (held.file().empty()) {
    return absl::FailedPreconditionError("this credential is no file");
  }
  COHORT_ASSIGN_OR_RETURN(const Credential there,
                          Credential::Load(held.file()));
  // Of another secret it may be another cluster's by now.
  if (there.authority() == authority || there.bytes() != held.bytes()) {
    return absl::OkStatus();
  }
  return there.For(authority).Save(held.file());
}

absl::StatusOr<Credential> Credential::FromText(absl::string_view text) {
  if (text.size() == kClusterBytes || text.size() == kRankBytes) {
    return absl::InvalidArgumentError(
        "it is of a release without TLS, which had no certificate in it");
  }
  const size_t end = text.find('\n');
  if (text.size() > kTextBytesMax || end == absl::string_view::npos ||
      !absl::ConsumePrefix(&text, kSecretLine)) {
    return absl::InvalidArgumentError("it does not begin with \"secret HEX\"");
  }
  COHORT_ASSIGN_OR_RETURN(const Credential secret,
                          FromHex(text.substr(0, end - kSecretLine.size())));
  std::string authority(text.substr(end + 1 - kSecretLine.size()));
  if (authority.empty()) return secret;
  if (const auto print = FingerprintOf(authority); !print.ok()) {
    return print.status();
  }
  return secret.For(std::move(authority));
}

std::string Credential::ToText() const {
  return absl::StrCat(kSecretLine, ToHex(), "\n", authority_);
}

Credential Credential::For(std::string authority) const {
  Credential credential = *this;
  credential.authority_ = std::move(authority);
  return credential;
}

absl::Status Credential::Save(const std::string& path) const {
  // Behind a link others read it too.
  std::error_code error;
  const std::string behind = std::filesystem::canonical(path, error).string();
  return WriteFileAtomically(error ? path : behind, ToText(), 0600);
}

std::string Credential::ToHex() const { return absl::BytesToHexString(bytes_); }

std::string Credential::AuthorizationHeader() const {
  return absl::StrCat("Bearer ", ToHex());
}

Credential Credential::OfToken(const Credential& cluster,
                               absl::string_view id) {
  COHORT_CHECK(cluster.bytes().size() == kClusterBytes);
  COHORT_CHECK(id.size() == kTokenIdBytes);
  return FromBytes(
             absl::StrCat(id, Signature(cluster.bytes(), kTokenContext, id)))
      ->For(cluster.authority());
}

absl::string_view Credential::TokenId() const {
  if (!IsToken() && bytes_.size() != kTokenRankBytes) return "";
  return absl::string_view(bytes_).substr(0, kTokenIdBytes);
}

Credential MintRankCredential(const Credential& holder,
                              const ProcessId& process) {
  COHORT_CHECK(!holder.IsRank());
  const std::string named = absl::StrCat(
      process.attempt.bytes(),
      BigEndian(static_cast<uint32_t>(process.slot), sizeof(uint32_t)),
      BigEndian(process.incarnation, sizeof(uint64_t)));
  const absl::string_view id = holder.TokenId();
  const absl::string_view secret =
      absl::string_view(holder.bytes()).substr(id.size());
  return Credential::FromBytes(
             absl::StrCat(id, named, Signature(secret, kRankContext, named)))
      ->For(holder.authority());
}

ProcessId ProcessOf(const Credential& rank) {
  COHORT_CHECK(rank.IsRank());
  const absl::string_view bytes =
      absl::string_view(rank.bytes()).substr(rank.TokenId().size());
  constexpr size_t kSlotAt = AttemptId::kBytes;
  constexpr size_t kIncarnationAt = kSlotAt + sizeof(uint32_t);
  return {.attempt = *AttemptId::FromBytes(bytes.substr(0, kSlotAt)),
          .slot = static_cast<int>(
              FromBigEndian(bytes.substr(kSlotAt, sizeof(uint32_t)))),
          .incarnation =
              FromBigEndian(bytes.substr(kIncarnationAt, sizeof(uint64_t)))};
}

}  // namespace cohort::rpc
