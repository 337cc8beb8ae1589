#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cohort {

// The resources every node knows; others are custom and mean what their name
// says.
inline constexpr char kCpu[] = "CPU";        // cores
inline constexpr char kGpu[] = "GPU";        // devices, whole or in parts
inline constexpr char kMemory[] = "memory";  // bytes

// How much of a resource, in 1/10,000 of its unit: exact where doubles are
// not (ten times 0.1 is 1).
//
// int64 reaches 922 T units, for memory 922 TB, enough for a node; a sum over
// nodes stays at that bound rather than overflow.  A value.
class Amount {
 public:
  static constexpr int64_t kScale = 10'000;

  constexpr Amount() = default;
  static constexpr Amount FromTenThousandths(int64_t n) { return Amount(n); }
  // Stays at the bound when `units` is out of range.
  static Amount FromUnits(int64_t units);
  // Rounds to the nearest.  InvalidArgument when `units` is negative, not a
  // number, over a billion, or positive but less than 1/10,000.
  static absl::StatusOr<Amount> FromDouble(double units);
  // Reads "2", "0.5", "1.2500".  InvalidArgument for anything else, for more
  // than four decimals and for more than a billion.
  static absl::StatusOr<Amount> Parse(absl::string_view text);

  constexpr int64_t ten_thousandths() const { return n_; }
  constexpr bool IsZero() const { return n_ == 0; }
  // Rounded down.
  constexpr int64_t WholeUnits() const { return n_ / kScale; }
  double ToDouble() const;
  // "2", "0.5", "-1.25".
  std::string ToString() const;

  Amount& operator+=(Amount other);
  Amount& operator-=(Amount other);
  friend Amount operator+(Amount a, Amount b) { return a += b; }
  friend Amount operator-(Amount a, Amount b) { return a -= b; }
  // REQUIRES: times >= 0.  Stays at the bound, as sums do.
  Amount Times(int64_t times) const;
  friend constexpr auto operator<=>(Amount, Amount) = default;

  template <typename H>
  friend H AbslHashValue(H h, Amount amount) {
    return H::combine(std::move(h), amount.n_);
  }
  friend std::ostream& operator<<(std::ostream& out, Amount amount) {
    return out << amount.ToString();
  }

 private:
  explicit constexpr Amount(int64_t n) : n_(n) {}

  int64_t n_ = 0;
};

// Amounts of named resources, ordered by name; what is not named is zero, and
// zero is not kept, so equal sets look equal.
//
// What a node offers, what a rank asks for, what is left.  Holds whatever it is
// given: Validate what came from outside.  A value; thread-compatible.
class ResourceSet {
 public:
  using Entry = std::pair<std::string, Amount>;

  ResourceSet() = default;

  Amount Get(absl::string_view name) const;
  // Zero takes the resource out.
  void Set(absl::string_view name, Amount amount);

  bool empty() const { return entries_.empty(); }
  size_t size() const { return entries_.size(); }
  std::vector<Entry>::const_iterator begin() const { return entries_.begin(); }
  std::vector<Entry>::const_iterator end() const { return entries_.end(); }

  // Whether `need` could be taken out of this.
  bool Fits(const ResourceSet& need) const;
  // What `need` lacks here, resource by resource: empty when it fits.
  ResourceSet Shortfall(const ResourceSet& need) const;

  void Add(const ResourceSet& other);
  // Takes `other` out; false, and nothing changed, when it does not fit.
  [[nodiscard]] bool Take(const ResourceSet& other);
  // Every amount `times` over.  REQUIRES: times >= 0.
  ResourceSet Times(int64_t times) const;

  // InvalidArgument, naming the resource, for a bad name, a negative amount,
  // more than a billion units (memory: 900 TB), or more than 64 resources.
  absl::Status Validate() const;

  // "CPU 1.5, GPU 2, memory 64GiB"; "nothing" when empty.
  std::string ToString() const;

  friend bool operator==(const ResourceSet&, const ResourceSet&) = default;
  friend auto operator<=>(const ResourceSet&, const ResourceSet&) = default;

  template <typename H>
  friend H AbslHashValue(H h, const ResourceSet& set) {
    return H::combine(std::move(h), set.entries_);
  }
  friend std::ostream& operator<<(std::ostream& out, const ResourceSet& set) {
    return out << set.ToString();
  }

 private:
  void AddTo(const std::string& name, Amount amount);

  std::vector<Entry> entries_;
};

// OK for [A-Za-z][A-Za-z0-9_.-]{0,62}; InvalidArgument otherwise.
absl::Status ValidateResourceName(absl::string_view name);

// Reads "CPU=2,GPU=0.5,memory=64GiB,license=1" (memory as sizes are written).
// InvalidArgument, naming the part, otherwise; valid when it returns.
absl::StatusOr<ResourceSet> ParseResources(absl::string_view text);

}  // namespace cohort
