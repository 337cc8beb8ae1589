#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

#include "common/job_id.h"

namespace cohort::client {

// The message that `text` is, in protobuf's text format, in which $11 is the id
// whose bytes are all 0x11, and $11_7 element 7 of it.
template <typename Message>
Message Parsed(const std::string& text) {
  std::string whole;
  for (size_t i = 0; i < text.size();) {
    if (text[i] != '$') {
      whole += text[i++];
      continue;
    }
    const size_t end = text.find_first_not_of("0123456789_", i + 1);
    std::string id = text.substr(i + 1, 2);
    std::string hex;
    while (hex.size() < 2 * JobId::kBytes) hex += id;
    std::string index = text.substr(i + 3, end - i - 3);
    if (!index.empty()) index[0] = '.';
    whole += '"';
    for (const char c : JobId::FromText(hex + index).value().bytes()) {
      absl::StrAppend(&whole, "\\x",
                      absl::Hex(static_cast<uint8_t>(c), absl::kZeroPad2));
    }
    whole += '"';
    i = end;
  }
  Message message;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(whole, &message))
      << text;
  return message;
}

// That `actual` is the JSON `expected`, with its keys in any order.
inline void ExpectJson(const std::string& actual, const char* expected) {
  EXPECT_EQ(nlohmann::json::parse(actual), nlohmann::json::parse(expected))
      << actual;
}

}  // namespace cohort::client
