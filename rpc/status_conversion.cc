#include "rpc/status_conversion.h"

#include <cstdint>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

#include "common/printable_text.h"
#include "common/status_util.h"

namespace cohort::rpc {
namespace {

constexpr char kReasonKey[] = "cohort-reason";
constexpr char kClusterKey[] = "cohort-cluster-bin";
constexpr char kTermKey[] = "cohort-term";
constexpr char kAuthorityKey[] = "cohort-authority-bin";
constexpr size_t kMessageBytesMax = 4096;

// Empty when there is none.
absl::string_view Trailer(const grpc::ClientContext& context, const char* key) {
  const auto& trailers = context.GetServerTrailingMetadata();
  const auto found = trailers.find(key);
  if (found == trailers.end()) return {};
  return absl::string_view(found->second.data(), found->second.size());
}

}  // namespace

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  const absl::string_view message = status.message();
  std::string text = Cut(message, kMessageBytesMax);
  if (text.size() < message.size()) text += "...";
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()),
                      std::move(text));
}

void AddTrailers(const absl::Status& status, const std::optional<Stamp>& stamp,
                 const std::string& authority,
                 grpc::ServerContextBase& context) {
  if (!status.ok()) {
    const std::string reason = GetReason(status);
    if (!reason.empty()) context.AddTrailingMetadata(kReasonKey, reason);
  }
  if (stamp.has_value()) {
    context.AddTrailingMetadata(kClusterKey, stamp->cluster_id);
    context.AddTrailingMetadata(kTermKey, absl::StrCat(stamp->term));
  }
  if (!authority.empty()) context.AddTrailingMetadata(kAuthorityKey, authority);
}

absl::Status FromGrpcStatus(const grpc::Status& status,
                            const grpc::ClientContext& context) {
  if (status.ok()) return absl::OkStatus();
  // Both number the codes alike, as grpc.io/grpc/core says.
  const int code = static_cast<int>(status.error_code());
  absl::Status result(code >= 1 && code <= 16
                          ? static_cast<absl::StatusCode>(code)
                          : absl::StatusCode::kUnknown,
                      status.error_message());
  const absl::string_view reason = Trailer(context, kReasonKey);
  return reason.empty() ? result : SetReason(std::move(result), reason);
}

std::optional<Stamp> StampOf(const grpc::ClientContext& context) {
  const absl::string_view term = Trailer(context, kTermKey);
  Stamp stamp;
  if (term.empty() || !absl::SimpleAtoi(term, &stamp.term)) {
    return std::nullopt;
  }
  stamp.cluster_id = std::string(Trailer(context, kClusterKey));
  return stamp;
}

std::string NextAuthorityOf(const grpc::ClientContext& context) {
  return std::string(Trailer(context, kAuthorityKey));
}

}  // namespace cohort::rpc
