#pragma once

#include <optional>
#include <string>
#include <vector>

namespace cohort::bench {

// What every bench takes: --json (one object a line) and --quick (fewer,
// shorter runs).
struct Flags {
  bool json = false;
  bool quick = false;
};

// Ends the program with status 2 and a usage line on anything else.
Flags ParseFlags(int argc, char** argv);

// Says that `bench` has nothing to measure here, and why; the exit status, 0.
int Skip(const std::string& bench, const std::string& why);

// The runs of one figure.
struct Samples {
  std::vector<double> values = {};

  double median() const;
  double min() const;
  double max() const;
  // The smallest value that at least `percent` % are not above.
  double Percentile(double percent) const;
};

// One promise, measured, beside what the machine can do at best.
struct Figure {
  std::string name = {};  // `case` in the output, as in "hot/25MiB"
  Samples samples = {};   // one a run; the median is the figure
  std::string unit = {};
  // Times: less is better.  Rates: more is.
  bool less_is_better = true;
  // In `unit`, measured in the same run; none when there is no floor to name.
  std::optional<double> floor = std::nullopt;
  // Somebody else's way to do it, in the same run.
  std::string peer = {};
  std::optional<double> peer_value = std::nullopt;
};

// Prints figures as they come, with load, commit and build.  Thread-compatible.
class Report {
 public:
  Report(std::string bench, const Flags& flags);

  void Add(const Figure& figure);
  // A figure that there is nothing to measure for here, by its name and unit:
  // a line of its own, so that nobody takes its absence for a promise kept.
  void Leave(const std::string& name, const std::string& unit,
             const std::string& why);

 private:
  const std::string bench_;
  const Flags flags_;
  const std::string commit_;
};

}  // namespace cohort::bench
