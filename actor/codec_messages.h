#pragma once

#include <concepts>
#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/message_lite.h"

#include "actor/codec_base.h"
#include "actor/codec_values.h"

// Codecs of statuses and of protobuf messages.
namespace cohort {

// The code, the message and the payloads.
template <>
struct Codec<absl::Status> {
  static void Encode(const absl::Status& status, Encoder& encoder);
  static bool Decode(Decoder& decoder, absl::Status& status);
};

// The status, and with OK the value.
template <Encodable T>
struct Codec<absl::StatusOr<T>> {
  static void Encode(const absl::StatusOr<T>& result, Encoder& encoder) {
    encoder.Write(result.status());
    if (result.ok()) encoder.Write(*result);
  }
  static bool Decode(Decoder& decoder, absl::StatusOr<T>& result) {
    absl::Status status;
    if (!decoder.Read(status)) return false;
    if (!status.ok()) {
      result = std::move(status);
      return true;
    }
    result = T();
    return decoder.Read(*result);
  }
};

namespace actor {

void WriteMessage(const google::protobuf::MessageLite& message,
                  Encoder& encoder);
bool ReadMessage(Decoder& decoder, google::protobuf::MessageLite& message);

}  // namespace actor

// The length, then protobuf's own bytes: fields may come and go as usual.
template <std::derived_from<google::protobuf::MessageLite> T>
struct Codec<T> {
  static void Encode(const T& message, Encoder& encoder) {
    actor::WriteMessage(message, encoder);
  }
  static bool Decode(Decoder& decoder, T& message) {
    return actor::ReadMessage(decoder, message);
  }
};

}  // namespace cohort
