#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace cohort {

// Lines over a number axis, for people: as an SVG picture and as text for a
// terminal.  The same chart gives the same bytes.  A value.
struct LineChart {
  struct Point {
    double x = 0;
    double y = 0;  // what is not a number is left out
  };
  struct Line {
    std::string name;  // in the legend
    std::vector<Point> points;
    // Of a line behind the others, such as one that a mean is drawn of.
    bool is_faint = false;
  };
  // A vertical line with a text.
  struct Note {
    double x = 0;
    std::string text;
  };

  std::string title;
  std::string x_name;
  std::string y_name;
  std::vector<Line> lines;
  std::vector<Note> notes;

  // Axes begin at 0, or below where a line does.
  std::string ToSvg() const;
  // At most `columns` wide, 16 lines of plot, and a line for each line of the
  // legend, which shows its sign and last value.  Notes are left out.
  std::string ToText(size_t columns) const;
};

// An exponential mean of `points` over about fifty of them, which does not lean
// on the first.
std::vector<LineChart::Point> RunningMean(std::vector<LineChart::Point> points);

}  // namespace cohort
