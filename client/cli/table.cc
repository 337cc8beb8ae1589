#include "client/cli/table.h"

#include <sys/ioctl.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

#include "common/check.h"
#include "common/printable_text.h"

namespace cohort::cli {

Table::Table(std::vector<std::string> header) { rows_ = {std::move(header)}; }

void Table::Add(std::vector<std::string> row) {
  COHORT_CHECK(row.size() == rows_.front().size());
  for (std::string& cell : row) {
    cell = OneLine(cell);
    if (cell.empty()) cell.push_back('-');
  }
  rows_.push_back(std::move(row));
}

size_t Table::Fitting(const std::vector<size_t>& widths, size_t columns) const {
  if (columns == 0) return widths.size();
  size_t begin = 0;
  for (size_t i = 0; i < widths.size(); ++i) {
    if (i > 0 && begin + ColumnsOf(rows_.front()[i]) > columns) return i;
    begin += widths[i] + 2;
  }
  return widths.size();
}

std::string Table::ToString(size_t columns) const {
  std::vector<size_t> widths(rows_.front().size());
  for (const std::vector<std::string>& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], ColumnsOf(row[i]));
    }
  }
  const size_t shown = Fitting(widths, columns);
  std::string text;
  for (const std::vector<std::string>& row : rows_) {
    std::string line;
    for (size_t i = 0; i < shown; ++i) {
      absl::StrAppend(&line, row[i]);
      if (i + 1 < shown) {
        line.append(widths[i] - ColumnsOf(row[i]) + 2, ' ');
      }
    }
    if (columns > 0 && ColumnsOf(line) > columns) line = Cut(line, columns);
    absl::StrAppend(&text, absl::StripTrailingAsciiWhitespace(line), "\n");
  }
  return text;
}

size_t LineColumns(int fd) {
  const char* const variable = std::getenv("COLUMNS");
  size_t columns = 0;
  if (variable != nullptr && absl::SimpleAtoi(variable, &columns)) {
    return columns;
  }
  winsize size = {};
  return ioctl(fd, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

size_t ColumnsOf(absl::string_view text) {
  // Every byte of UTF-8 but those that go on with a character.
  return static_cast<size_t>(std::count_if(
      text.begin(), text.end(),
      [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

}  // namespace cohort::cli
