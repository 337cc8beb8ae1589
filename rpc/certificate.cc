#include "rpc/certificate.h"

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "openssl/bio.h"
#include "openssl/conf.h"
#include "openssl/evp.h"
#include "openssl/hmac.h"
#include "openssl/pem.h"
#include "openssl/rand.h"
#include "openssl/ssl.h"
#include "openssl/x509.h"
#include "openssl/x509v3.h"

#include "common/check.h"
#include "common/status_macros.h"

namespace cohort::rpc {
namespace {

template <auto kFree>
struct Freed {
  template <typename T>
  void operator()(T* what) const {
    kFree(what);
  }
};
using Key = std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY_free>>;
using Certificate = std::unique_ptr<X509, Freed<X509_free>>;
using Memory = std::unique_ptr<BIO, Freed<BIO_free_all>>;

// Separates these keys from all else that is made of such a secret.
constexpr absl::string_view kServerContext = "cohort server 1";
constexpr size_t kSeedBytes = 32;
constexpr absl::string_view kAuthorityName = "cohort authority";

// Long past, so that a clock that is off is not, and RFC 5280's "no end".
constexpr char kBegin[] = "20200101000000Z";
constexpr char kEnd[] = "99991231235959Z";

std::string TextOf(BIO* memory) {
  char* bytes = nullptr;
  const long size = BIO_get_mem_data(memory, &bytes);
  return std::string(bytes, static_cast<size_t>(size));
}

// Reads `text`, which outlives it.
Memory ReaderOf(const std::string& text) {
  return Memory(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

std::string ToPem(EVP_PKEY* key) {
  const Memory memory(BIO_new(BIO_s_mem()));
  COHORT_CHECK(PEM_write_bio_PKCS8PrivateKey(memory.get(), key, nullptr,
                                             nullptr, 0, nullptr, nullptr));
  return TextOf(memory.get());
}

std::string ToPem(X509* certificate) {
  const Memory memory(BIO_new(BIO_s_mem()));
  COHORT_CHECK(PEM_write_bio_X509(memory.get(), certificate));
  return TextOf(memory.get());
}

Key NewKey() {
  unsigned char seed[kSeedBytes];
  COHORT_CHECK(RAND_bytes(seed, sizeof(seed)) == 1);
  return Key(EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, nullptr, seed,
                                          sizeof(seed)));
}

uint64_t RandomNumber() {
  uint64_t number = 0;
  COHORT_CHECK(RAND_bytes(reinterpret_cast<unsigned char*>(&number),
                          sizeof(number)) == 1);
  return number;
}

void Extend(X509* certificate, X509* issuer, int what, const char* value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* const extension =
      X509V3_EXT_conf_nid(nullptr, &context, what, value);
  COHORT_CHECK(extension != nullptr) << value;
  COHORT_CHECK(X509_add_ext(certificate, extension, -1));
  X509_EXTENSION_free(extension);
}

// `signed_by`: the issuer and its key; none: the certificate signs itself.
struct Signer {
  X509* certificate = nullptr;
  EVP_PKEY* key = nullptr;
};

// `server_name`: another one that a server has.
Certificate Certify(EVP_PKEY* key, const char* name, bool is_authority,
                    uint64_t serial, Signer signer,
                    absl::string_view server_name = kServerName) {
  Certificate made(X509_new());
  X509* const certificate = made.get();
  X509_set_version(certificate, X509_VERSION_3);
  ASN1_INTEGER_set_uint64(X509_get_serialNumber(certificate), serial);
  ASN1_TIME_set_string(X509_getm_notBefore(certificate), kBegin);
  ASN1_TIME_set_string(X509_getm_notAfter(certificate), kEnd);
  X509_set_pubkey(certificate, key);
  X509_NAME_add_entry_by_txt(
      X509_get_subject_name(certificate), "CN", MBSTRING_UTF8,
      reinterpret_cast<const unsigned char*>(name), -1, -1, 0);
  if (signer.certificate == nullptr) signer = {certificate, key};
  X509_set_issuer_name(certificate, X509_get_subject_name(signer.certificate));
  Extend(certificate, signer.certificate, NID_basic_constraints,
         is_authority ? "critical,CA:TRUE,pathlen:0" : "critical,CA:FALSE");
  Extend(certificate, signer.certificate, NID_key_usage,
         is_authority ? "critical,keyCertSign,cRLSign"
                      : "critical,digitalSignature");
  Extend(certificate, signer.certificate, NID_subject_key_identifier, "hash");
  Extend(certificate, signer.certificate, NID_authority_key_identifier,
         "keyid:always");
  if (!is_authority) {
    std::string names = absl::StrCat("DNS:", kServerName);
    if (server_name != kServerName) {
      absl::StrAppend(&names, ",DNS:", server_name);
    }
    Extend(certificate, signer.certificate, NID_subject_alt_name,
           names.c_str());
    Extend(certificate, signer.certificate, NID_ext_key_usage, "serverAuth");
  }
  COHORT_CHECK(X509_sign(certificate, signer.key, nullptr) > 0);
  return made;
}

absl::StatusOr<Key> ReadKey(const std::string& pem) {
  Key key(
      PEM_read_bio_PrivateKey(ReaderOf(pem).get(), nullptr, nullptr, nullptr));
  if (key == nullptr || EVP_PKEY_get_id(key.get()) != EVP_PKEY_ED25519) {
    return absl::InvalidArgumentError("not an Ed25519 key in PEM");
  }
  return key;
}

Certificate ReadCertificate(const std::string& pem) {
  return Certificate(
      PEM_read_bio_X509(ReaderOf(pem).get(), nullptr, nullptr, nullptr));
}

}  // namespace

std::string NewPrivateKey() { return ToPem(NewKey().get()); }

absl::StatusOr<Identity> AuthorityOf(const std::string& private_key) {
  COHORT_ASSIGN_OR_RETURN(const Key key, ReadKey(private_key));
  const Certificate made =
      Certify(key.get(), std::string(kAuthorityName).c_str(),
              /*is_authority=*/true, 1, Signer());
  return Identity{.certificate = ToPem(made.get()), .private_key = private_key};
}

Identity NewAuthority() {
  const Key key = NewKey();
  const std::string name = absl::StrCat(
      kAuthorityName, " ", absl::Hex(RandomNumber(), absl::kZeroPad16));
  const Certificate made = Certify(key.get(), name.c_str(),
                                   /*is_authority=*/true, 1, Signer());
  return {.certificate = ToPem(made.get()), .private_key = ToPem(key.get())};
}

absl::StatusOr<Identity> ReadAuthority(absl::string_view pem) {
  constexpr absl::string_view kKeyEnd = "-----END PRIVATE KEY-----\n";
  const size_t end = pem.find(kKeyEnd);
  if (end == absl::string_view::npos) {
    return absl::InvalidArgumentError("there is no private key in PEM");
  }
  const std::string key_text(pem.substr(0, end + kKeyEnd.size()));
  const std::string text(pem.substr(key_text.size()));
  if (text.empty()) return AuthorityOf(key_text);
  COHORT_ASSIGN_OR_RETURN(const Key key, ReadKey(key_text));
  const Certificate certificate = ReadCertificate(text);
  if (certificate == nullptr ||
      X509_check_private_key(certificate.get(), key.get()) != 1) {
    return absl::InvalidArgumentError("the certificate is not the key's");
  }
  return Identity{.certificate = ToPem(certificate.get()),
                  .private_key = key_text};
}

std::string ServerNameOf(const std::string& authority) {
  const Certificate read = ReadCertificate(authority);
  char name[64] = "";
  if (read != nullptr) {
    X509_NAME_get_text_by_NID(X509_get_subject_name(read.get()), NID_commonName,
                              name, sizeof(name));
  }
  absl::string_view id = name;
  if (!absl::ConsumePrefix(&id, kAuthorityName) ||
      !absl::ConsumePrefix(&id, " ")) {
    return kServerName;
  }
  return absl::StrCat(kServerName, "-", id);
}

Identity IssueServer(const Identity& authority) {
  const Key key = NewKey();
  const Key signs = ReadKey(authority.private_key).value();
  const Certificate issuer = ReadCertificate(authority.certificate);
  const Certificate made = Certify(
      key.get(), kServerName, /*is_authority=*/false, RandomNumber() | 2,
      {issuer.get(), signs.get()}, ServerNameOf(authority.certificate));
  return {.certificate = ToPem(made.get()), .private_key = ToPem(key.get())};
}

Identity ServerOfSecret(absl::string_view secret) {
  unsigned char seed[EVP_MAX_MD_SIZE];
  unsigned int seed_bytes = 0;
  COHORT_CHECK(
      HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
           reinterpret_cast<const unsigned char*>(kServerContext.data()),
           kServerContext.size(), seed, &seed_bytes) != nullptr);
  COHORT_CHECK(seed_bytes == kSeedBytes);
  const Key key(EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, nullptr, seed,
                                             seed_bytes));
  const Certificate made = Certify(key.get(), kServerName,
                                   /*is_authority=*/false, 1, Signer());
  return {.certificate = ToPem(made.get()), .private_key = ToPem(key.get())};
}

absl::StatusOr<std::string> FingerprintOf(const std::string& certificate) {
  const Certificate read = ReadCertificate(certificate);
  unsigned char hash[EVP_MAX_MD_SIZE];
  unsigned int hash_bytes = 0;
  if (read == nullptr ||
      X509_digest(read.get(), EVP_sha256(), hash, &hash_bytes) != 1) {
    return absl::InvalidArgumentError("not a certificate in PEM");
  }
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<char*>(hash), hash_bytes));
}

// gRPC sets its own least version, 1.2, for each connection; what is switched
// off stays off.
void RequireTls13() {
  OPENSSL_init_ssl(OPENSSL_INIT_LOAD_CONFIG, nullptr);
  const std::string text =
      "openssl_conf = cohort\n"
      "[cohort]\n"
      "ssl_conf = ssl\n"
      "[ssl]\n"
      "system_default = only13\n"
      "[only13]\n"
      "Protocol = -TLSv1,-TLSv1.1,-TLSv1.2\n";
  CONF* const conf = NCONF_new(nullptr);
  long line = 0;
  COHORT_CHECK(NCONF_load_bio(conf, ReaderOf(text).get(), &line) > 0);
  COHORT_CHECK(CONF_modules_load(conf, nullptr, 0) > 0);
  NCONF_free(conf);
}

}  // namespace cohort::rpc
