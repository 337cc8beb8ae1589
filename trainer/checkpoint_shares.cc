#include "trainer/checkpoint_shares.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

#include "common/hash.h"

namespace cohort::trainer {
namespace {

using By = CheckpointFile::By;

size_t BytesOf(const CheckpointFile& file) {
  size_t bytes = 0;
  for (const TensorView& tensor : file.tensors) bytes += tensor.bytes.size();
  return bytes;
}

// Tensors that stay together: all of a small part, or one.
struct Piece {
  size_t file = 0;
  std::vector<size_t> tensors;
  size_t bytes = 0;
};

std::vector<Piece> PiecesOf(const std::vector<CheckpointFile>& files,
                            size_t split_bytes_min) {
  std::vector<Piece> pieces;
  for (size_t i = 0; i < files.size(); ++i) {
    const CheckpointFile& file = files[i];
    if (file.by != By::kAll) continue;
    const size_t count = file.tensors.size();
    if (BytesOf(file) < split_bytes_min) {
      Piece& whole =
          pieces.emplace_back(Piece{i, std::vector<size_t>(count), 0});
      std::iota(whole.tensors.begin(), whole.tensors.end(), size_t{0});
      whole.bytes = BytesOf(file);
      continue;
    }
    for (size_t k = 0; k < count; ++k) {
      pieces.push_back({i, {k}, file.tensors[k].bytes.size()});
    }
  }
  return pieces;
}

// Which tensors of each file each rank writes: [file][rank].
using Dealt = std::vector<std::vector<std::vector<size_t>>>;

Dealt DealOut(const std::vector<CheckpointFile>& files, int world,
              size_t split_bytes_min) {
  std::vector<Piece> pieces = PiecesOf(files, split_bytes_min);
  // The largest first, each to who has least.
  std::ranges::stable_sort(
      pieces, [](const Piece& a, const Piece& b) { return a.bytes > b.bytes; });
  Dealt dealt(files.size(), std::vector<std::vector<size_t>>(world));
  std::vector<size_t> load(world);
  for (const Piece& piece : pieces) {
    const auto least = std::ranges::min_element(load);
    *least += piece.bytes;
    std::vector<size_t>& mine = dealt[piece.file][least - load.begin()];
    mine.insert(mine.end(), piece.tensors.begin(), piece.tensors.end());
  }
  return dealt;
}

std::string FileName(const std::string& part, int index, int count) {
  if (count == 1) return absl::StrCat(part, kTensorSuffix);
  return absl::StrFormat("%s-%05d-of-%05d%s", part, index + 1, count,
                         kTensorSuffix);
}

}  // namespace

std::vector<CheckpointShare> ShareOf(const std::vector<CheckpointFile>& files,
                                     int rank, int world,
                                     size_t split_bytes_min) {
  const Dealt dealt = DealOut(files, world, split_bytes_min);
  std::vector<CheckpointShare> shares;
  for (size_t i = 0; i < files.size(); ++i) {
    const CheckpointFile& file = files[i];
    CheckpointShare share{{}, file.name, file.tensors, file.metadata};
    if (file.by == By::kLead) {
      if (rank != 0) continue;
      share.file = FileName(file.name, 0, 1);
    } else if (file.by == By::kEach) {
      share.file = FileName(file.name, rank, world);
    } else {
      const auto has_some = [](const auto& tensors) {
        return !tensors.empty();
      };
      const auto& of_ranks = dealt[i];
      const auto mine = of_ranks.begin() + rank;
      const auto writers = std::ranges::count_if(of_ranks, has_some);
      // A part without a tensor is a file all the same.
      if (!has_some(*mine) && (writers > 0 || rank != 0)) continue;
      share.file = FileName(
          file.name,
          static_cast<int>(std::count_if(of_ranks.begin(), mine, has_some)),
          std::max(1, static_cast<int>(writers)));
      share.tensors.clear();
      for (const size_t k : *mine) share.tensors.push_back(file.tensors[k]);
    }
    shares.push_back(std::move(share));
  }
  return shares;
}

uint64_t FingerprintOf(const std::vector<CheckpointFile>& files) {
  std::string text;
  for (const CheckpointFile& file : files) {
    if (file.by != By::kAll) continue;
    absl::StrAppend(&text, file.name, "\n");
    for (const TensorView& tensor : file.tensors) {
      absl::StrAppend(&text, " ", tensor.name, " ", TensorTypeName(tensor.type),
                      " ", absl::StrJoin(tensor.shape, ","), "\n");
    }
  }
  uint64_t first = 0;
  const Digest digest = Sha256::Of(text);
  std::memcpy(&first, digest.bytes().data(), sizeof(first));
  return first;
}

}  // namespace cohort::trainer
