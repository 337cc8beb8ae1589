#include "actor/codec_messages.h"

#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"

#include "actor/call_error.h"
#include "common/status_util.h"

namespace cohort {

void Codec<absl::Status>::Encode(const absl::Status& status, Encoder& encoder) {
  encoder.Write(static_cast<int32_t>(status.code()));
  if (status.ok()) return;
  encoder.WriteArray(status.message().data(), status.message().size());
  std::vector<std::pair<std::string, std::string>> payloads;
  status.ForEachPayload(
      [&payloads](absl::string_view type_url, const absl::Cord& payload) {
        payloads.emplace_back(std::string(type_url), std::string(payload));
      });
  encoder.Write(payloads);
}

bool Codec<absl::Status>::Decode(Decoder& decoder, absl::Status& status) {
  int32_t code = 0;
  if (!decoder.Read(code)) return false;
  if (code == 0) return true;
  std::string message;
  std::vector<std::pair<std::string, std::string>> payloads;
  if (!decoder.Read(message) || !decoder.Read(payloads)) return false;
  // A code that it does not know it reads as kUnknown.
  status = absl::Status(static_cast<absl::StatusCode>(code), message);
  for (const auto& [type_url, payload] : payloads) {
    status.SetPayload(type_url, absl::Cord(payload));
  }
  return true;
}

namespace actor {

void WriteMessage(const google::protobuf::MessageLite& message,
                  Encoder& encoder) {
  const size_t size = message.ByteSizeLong();
  if (size > std::numeric_limits<int32_t>::max()) {
    encoder.Fail(SetReason(absl::InvalidArgumentError(absl::StrCat(
                               "a ", message.GetTypeName(), " is over 2 GiB")),
                           kReasonTooLarge));
    return;
  }
  if (!message.IsInitialized()) {
    encoder.Fail(absl::InvalidArgumentError(
        absl::StrCat("a ", message.GetTypeName(), " lacks required fields")));
    return;
  }
  std::string bytes(size, '\0');
  message.SerializeWithCachedSizesToArray(
      reinterpret_cast<uint8_t*>(bytes.data()));
  encoder.WriteArray(bytes.data(), bytes.size());
}

bool ReadMessage(Decoder& decoder, google::protobuf::MessageLite& message) {
  size_t count = 0;
  absl::string_view bytes;
  return decoder.ReadArray<char>(count, bytes) &&
         bytes.size() <= std::numeric_limits<int32_t>::max() &&
         message.ParsePartialFromArray(bytes.data(),
                                       static_cast<int>(bytes.size())) &&
         message.IsInitialized();
}

}  // namespace actor
}  // namespace cohort
