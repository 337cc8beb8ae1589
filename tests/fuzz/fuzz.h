#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

// What each *_fuzz.cc defines.  Linked with libFuzzer (preset fuzz) or with
// fuzz_main.cc, which feeds the seeds and mutations of them (every ctest run).

// Reads arbitrary bytes as the reader in our programs would.
// Returns 0; a finding is a crash, a report of a sanitizer, a failed
// COHORT_CHECK.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

// Lawful inputs to start from.
std::vector<std::string> FuzzSeeds();
