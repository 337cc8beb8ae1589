#pragma once

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

#include "common/printable_text.h"

namespace cohort::cli {

// "key: value" lines; what is not known is left out.  Thread-compatible.
class Fields {
 public:
  // REQUIRES: a key of fewer than 15 bytes.
  void Add(absl::string_view key, absl::string_view value) {
    const std::string line = OneLine(value);
    if (line.empty() || line == "-") return;
    absl::StrAppend(&text_, key, ":", std::string(15 - key.size(), ' '), line,
                    "\n");
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

}  // namespace cohort::cli
