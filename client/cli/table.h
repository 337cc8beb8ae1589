#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"

// Text for people.
namespace cohort::cli {

// How tables are printed.
struct TableView {
  bool wide = false;   // whole ids and every column
  size_t columns = 0;  // that a line may have; 0: any number
};

// Columns as wide as their widest cell, two spaces between them, no spaces at
// the ends of lines.  Thread-compatible.
class Table {
 public:
  explicit Table(std::vector<std::string> header);

  // REQUIRES: as many cells as the header has.  Cells are shown on one line.
  void Add(std::vector<std::string> row);

  // With a newline after each row.  Lines are cut to `columns`, columns whose
  // header does not fit are left out; 0: neither.
  std::string ToString(size_t columns = 0) const;

 private:
  // How many of the columns, which are so wide, are shown.
  size_t Fitting(const std::vector<size_t>& widths, size_t columns) const;

  std::vector<std::vector<std::string>> rows_;
};

// How wide a line of `fd` may be: as COLUMNS says, else its terminal's; 0: any.
size_t LineColumns(int fd);

// How many columns it takes on a terminal, for UTF-8 without wide characters.
size_t ColumnsOf(absl::string_view text);

// "a=1,b=2": the entries of a message's map, whose own order is by chance.
template <typename Map>
std::string SortedText(const Map& map, absl::string_view separator) {
  const std::map<std::string, std::string> sorted(map.begin(), map.end());
  return absl::StrJoin(sorted, separator, absl::PairFormatter("="));
}

}  // namespace cohort::cli
