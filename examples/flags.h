#pragma once

#include <cstdint>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

// Flags of the examples, checked before CLI11's own conversion, which clamps
// and wraps numbers that do not fit.
namespace cohort::examples {

inline constexpr uint64_t kCountMax = 1'000'000'000'000;

inline std::string Quoted(const std::string& text) {
  return absl::StrCat("\"", text, "\"");
}

inline CLI::Validator Whole(uint64_t least, uint64_t most) {
  const auto check = [least, most](const std::string& text) -> std::string {
    uint64_t number = 0;
    const bool is_one = absl::SimpleAtoi(text, &number);
    if (is_one && number >= least && number <= most) return "";
    return absl::StrCat(Quoted(text), " is no whole number from ", least,
                        " to ", most);
  };
  return CLI::Validator(check, "");
}

inline CLI::Validator Between(double least, double most) {
  const auto check = [least, most](const std::string& text) -> std::string {
    double number = 0;
    // So that NaN, which is neither less nor more, is refused too.
    const bool within =
        absl::SimpleAtod(text, &number) && number >= least && number <= most;
    if (within) return "";
    return absl::StrCat(Quoted(text), " is no number from ", least, " to ",
                        most);
  };
  return CLI::Validator(check, "");
}

template <typename Number>
void AddWhole(CLI::App& app, const char* name, Number& number, uint64_t least,
              uint64_t most, const char* what) {
  app.add_option(name, number, what)->check(Whole(least, most))->type_name("N");
}

inline void AddPath(CLI::App& app, const char* name, std::string& path,
                    const char* type, const char* what) {
  app.add_option(name, path, what)->type_name(type);
}

// The same of all examples.
inline void AddUseGpu(CLI::App& app, bool& use_gpu) {
  app.add_flag("--use-gpu", use_gpu,
               "Compute on the GPU that this process was granted, refused "
               "where there is none, and reduce on it; through the host's "
               "memory where the ranks' GPUs cannot (a line no_gpu_comm says "
               "why). Without it all is done on the CPU");
}

}  // namespace cohort::examples
