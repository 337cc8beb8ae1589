#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "trainer/dataset.h"

namespace cohort::trainer {

struct TokenOptions {
  // Tokens that a model sees at once.
  int64_t context = 128;
  // 1, 2 or 4: a token is an unsigned number of so many bytes, little endian,
  // below 2^24.  1 reads any text as its bytes.
  int token_bytes = 1;
  // Which part of the file, 0 to 1: {.to = 0.9} to train on, {.from = 0.9} to
  // validate on.
  double from = 0;
  double to = 1;
};

// A file of tokens, as tokenizers for GPT write it (nanoGPT's train.bin), in
// windows of `context` tokens that lie side by side, each with the token behind
// it: what a model reads and, a token on, what it is to foretell.
//
// A sample's input is its context + 1 tokens, as floats, which hold them
// exactly; its label the last one.  A plain file is mapped, so that ranks of a
// node share its pages; it must not be cut short meanwhile.  A gzip file of
// bytes, of at most 1 GiB, is held in memory.  Immutable.
class TokenDataset final : public Dataset {
 public:
  // InvalidArgument when an option makes no sense or the part has no window;
  // DataLoss when a gzip file is damaged; else the file system's answer, with
  // the path.
  static absl::StatusOr<std::unique_ptr<TokenDataset>> Open(
      const std::string& path, const TokenOptions& options);
  ~TokenDataset() override;

  int64_t size() const override;
  int64_t input_size() const override { return options_.context + 1; }
  // DataLoss for a token of 2^24 or more, with its place.
  absl::Status Read(std::span<const int64_t> ids, std::span<float> inputs,
                    std::span<int64_t> labels) const override;

 private:
  explicit TokenDataset(const TokenOptions& options) : options_(options) {}

  absl::Status Map(const std::string& path);
  absl::Status TakePart();
  // REQUIRES: place < count_.
  uint32_t Token(int64_t place) const;

  const TokenOptions options_;
  std::string held_;        // of a gzip file
  void* mapped_ = nullptr;  // the file
  size_t mapped_bytes_ = 0;
  std::span<const char> bytes_;  // of all of it
  int64_t first_ = 0;            // token of the part
  int64_t count_ = 0;            // tokens of the part
};

}  // namespace cohort::trainer
