// The most frequent words of Moby-Dick, counted by a task for each piece of it.
//
//   cohort up --detach && ./word_count && cohort down
#include <algorithm>
#include <cctype>
#include <cstddef>
#include <iostream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

#include "actor/actor.h"
#include "trainer/gzip_file.h"

using Counts = std::map<std::string, int>;

Counts CountWords(absl::string_view text) {
  Counts counts;
  std::string word;
  for (const char c : text) {
    if (std::isalpha(static_cast<unsigned char>(c)) != 0) {
      word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    } else if (!word.empty()) {
      ++counts[std::exchange(word, "")];
    }
  }
  if (!word.empty()) ++counts[word];
  return counts;
}

// About `size` bytes each, cut between words.
std::vector<absl::string_view> Pieces(absl::string_view text, size_t size) {
  std::vector<absl::string_view> pieces;
  while (!text.empty()) {
    size_t end = std::min(size, text.size());
    while (end < text.size() && text[end] != ' ') ++end;
    pieces.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return pieces;
}

constexpr size_t kTextMax = 1 << 30;

int main(int argc, char** argv) {
  cohort::Runtime runtime = cohort::Init(argc, argv);
  auto file = cohort::trainer::GzipFile::Open(
      argc > 1 ? argv[1] : "data/text/moby-dick.txt.gz");
  const absl::StatusOr<std::string> text =
      file.ok() ? file->ReadRest(kTextMax) : file.status();
  if (!text.ok()) {
    std::cerr << text.status().message() << "\n";
    return 1;
  }
  std::vector<cohort::Future<Counts>> futures;
  for (const absl::string_view piece : Pieces(*text, 32 << 10)) {
    futures.push_back(runtime.Run<&CountWords>(piece));
  }
  Counts total;
  for (const cohort::Future<Counts>& future : futures) {
    const absl::StatusOr<Counts> counts = future.Get();
    if (!counts.ok()) {
      std::cerr << counts.status().message() << "\n";
      return 1;
    }
    for (const auto& [word, count] : *counts) total[word] += count;
  }
  std::vector<std::pair<int, std::string>> sorted;
  for (const auto& [word, count] : total) sorted.emplace_back(count, word);
  std::sort(sorted.rbegin(), sorted.rend());
  for (size_t i = 0; i < std::min<size_t>(10, sorted.size()); ++i) {
    std::cout << sorted[i].second << " " << sorted[i].first << "\n";
  }
}
