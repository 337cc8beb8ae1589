// Feeds a fuzz target its seeds and mutations of them, a fixed number of them,
// so that every test run does a little fuzzing with any compiler.
//
//   x_fuzz [--runs N] [--corpus DIR]  COHORT_SEED=N replays a run; the files
//                                     of DIR are fed and mutated too
//   x_fuzz --write-seeds DIRECTORY    a first corpus for libFuzzer

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "common/testing/seed.h"
#include "tests/fuzz/fuzz.h"

namespace {

void Feed(const std::string& input) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()),
                         input.size());
}

// A few edits of the kinds that parsers stumble over.
std::string Mutate(std::string input, const std::vector<std::string>& seeds,
                   std::mt19937_64& random) {
  const auto below = [&random](size_t n) {
    return static_cast<size_t>(random() % n);
  };
  for (size_t edits = 1 + below(4); edits > 0; --edits) {
    const size_t at = input.empty() ? 0 : below(input.size());
    switch (input.empty() ? 2 : below(7)) {
      case 0:
        input[at] = static_cast<char>(input[at] ^ (1 << below(8)));
        break;
      case 1:
        input[at] = "\0\xff\x7f/-.:,={}[]\"\n9 "[below(18)];
        break;
      case 2:
        input.insert(at, 1, static_cast<char>(random()));
        break;
      case 3:
        input.erase(at, 1 + below(8));
        break;
      case 4:
        input.resize(at);
        break;
      case 5:
        input.insert(at, input.substr(at, 1 + below(32)));
        break;
      default:
        input.insert(at, seeds[below(seeds.size())]);
        break;
    }
    if (input.size() > 1 << 16) input.resize(1 << 16);
  }
  return input;
}

int WriteSeeds(const std::string& directory) {
  std::filesystem::create_directories(directory);
  int number = 0;
  for (const std::string& seed : FuzzSeeds()) {
    std::ofstream(directory + "/seed-" + std::to_string(number++),
                  std::ios::binary)
        << seed;
  }
  return 0;
}

void ReadCorpus(const std::string& directory, std::vector<std::string>& seeds) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    files.push_back(entry.path());
  }
  // One order, whatever the file system's.
  std::sort(files.begin(), files.end());
  for (const auto& file : files) {
    std::ifstream in(file, std::ios::binary);
    seeds.emplace_back(std::istreambuf_iterator<char>(in),
                       std::istreambuf_iterator<char>());
  }
}

}  // namespace

int main(int argc, char** argv) {
  int runs = 20'000;
  if (argc == 3 && std::strcmp(argv[1], "--write-seeds") == 0) {
    return WriteSeeds(argv[2]);
  }
  std::vector<std::string> seeds = FuzzSeeds();
  for (int i = 1; i < argc; i += 2) {
    if (i + 1 < argc && std::strcmp(argv[i], "--runs") == 0) {
      runs = std::atoi(argv[i + 1]);
    } else if (i + 1 < argc && std::strcmp(argv[i], "--corpus") == 0) {
      ReadCorpus(argv[i + 1], seeds);
    } else {
      std::fprintf(stderr,
                   "%s [--runs N] [--corpus DIRECTORY] | --write-seeds "
                   "DIRECTORY\n",
                   argv[0]);
      return 2;
    }
  }
  Feed("");
  for (const std::string& seed : seeds) Feed(seed);
  std::mt19937_64 random(cohort::TestSeed());
  for (int i = 0; i < runs; ++i) {
    Feed(Mutate(seeds[random() % seeds.size()], seeds, random));
  }
  std::printf("%zu seeds, %d mutations\n", seeds.size(), runs);
  return 0;
}
