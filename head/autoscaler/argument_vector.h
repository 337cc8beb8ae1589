#pragma once

#include <string>
#include <vector>

namespace cohort::head {

// `words` as exec takes them, which writes to none of them.  They outlive it.
inline std::vector<char*> ArgumentVector(
    const std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (const std::string& word : words) {
    pointers.push_back(const_cast<char*>(word.c_str()));
  }
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace cohort::head
