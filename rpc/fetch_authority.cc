#include "rpc/fetch_authority.h"

#include <netdb.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "openssl/bio.h"
#include "openssl/pem.h"
#include "openssl/ssl.h"
#include "openssl/x509.h"

#include "common/status_macros.h"
#include "common/status_util.h"
#include "common/unique_fd.h"
#include "rpc/certificate.h"

namespace cohort::rpc {
namespace {

absl::StatusOr<UniqueFd> Connected(const HostPort& address,
                                   absl::Duration timeout) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(
      address.host.c_str(), absl::StrCat(address.port).c_str(), &hints, &found);
  if (error != 0) {
    return absl::UnavailableError(
        absl::StrCat(address.host, " does not resolve here (",
                     gai_strerror(error), "): check --address"));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owned(found,
                                                             freeaddrinfo);
  int failure = 0;
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    UniqueFd fd(socket(each->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!fd) continue;
    const timeval limit = absl::ToTimeval(timeout);
    setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    if (connect(fd.get(), each->ai_addr, each->ai_addrlen) == 0) return fd;
    failure = errno;
  }
  return absl::UnavailableError(
      absl::StrCat("the head at ", address.ToString(), " cannot be reached: ",
                   strerror(failure), " (start it, or check --address)"));
}

std::string PemOf(X509* certificate) {
  const std::unique_ptr<BIO, int (*)(BIO*)> memory(BIO_new(BIO_s_mem()),
                                                   BIO_free);
  PEM_write_bio_X509(memory.get(), certificate);
  char* bytes = nullptr;
  const long size = BIO_get_mem_data(memory.get(), &bytes);
  return std::string(bytes, static_cast<size_t>(size));
}

}  // namespace

absl::StatusOr<std::string> FetchAuthority(const HostPort& address,
                                           absl::string_view fingerprint,
                                           absl::Duration timeout) {
  COHORT_ASSIGN_OR_RETURN(const UniqueFd fd, Connected(address, timeout));
  const std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)> context(
      SSL_CTX_new(TLS_client_method()), SSL_CTX_free);
  SSL_CTX_set_min_proto_version(context.get(), TLS1_3_VERSION);
  // Whose server it is is told by the hash, below.
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_NONE, nullptr);
  const std::unique_ptr<SSL, void (*)(SSL*)> tls(SSL_new(context.get()),
                                                 SSL_free);
  SSL_set_fd(tls.get(), fd.get());
  SSL_set_tlsext_host_name(tls.get(), kServerName);
  constexpr unsigned char kProtocol[] = {2, 'h', '2'};
  SSL_set_alpn_protos(tls.get(), kProtocol, sizeof(kProtocol));
  if (SSL_connect(tls.get()) != 1) {
    return SetReason(
        absl::UnavailableError(absl::StrCat(
            "what answers at ", address.ToString(),
            " does not speak TLS 1.3 and was sent nothing (check --address)")),
        "plaintext");
  }
  STACK_OF(X509)* const chain = SSL_get_peer_cert_chain(tls.get());
  for (int i = 0; i < sk_X509_num(chain); ++i) {
    std::string authority = PemOf(sk_X509_value(chain, i));
    const absl::StatusOr<std::string> print = FingerprintOf(authority);
    if (print.ok() && *print == fingerprint) return authority;
  }
  return SetReason(
      absl::UnauthenticatedError(absl::StrCat(
          "what answers at ", address.ToString(),
          " has another authority than the token's and was sent nothing "
          "(check --address, or take another token of that cluster: an older "
          "one ends when its authority is rotated)")),
      "other_authority");
}

}  // namespace cohort::rpc
