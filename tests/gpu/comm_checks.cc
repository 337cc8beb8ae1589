#include "tests/gpu/comm_checks.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

#include "common/status_macros.h"
#include "trainer/comm/float16.h"

namespace cohort::trainer {
namespace {

constexpr absl::Duration kLong = absl::Minutes(1);
// Inline, one block of a kernel, and many of them with a part left over.
constexpr size_t kCounts[] = {1, 1000, 20'011};

template <typename T>
struct Element;
template <>
struct Element<float> {
  static constexpr DType kType = DType::kF32;
  static constexpr double kTolerance = 1e-6;
};
template <>
struct Element<double> {
  static constexpr DType kType = DType::kF64;
  static constexpr double kTolerance = 1e-12;
};
template <>
struct Element<int32_t> {
  static constexpr DType kType = DType::kI32;
  static constexpr double kTolerance = 0;
};
template <>
struct Element<int64_t> {
  static constexpr DType kType = DType::kI64;
  static constexpr double kTolerance = 0;
};
// Rounded at each addition: a few units in the last place.
template <>
struct Element<Float16> {
  static constexpr DType kType = DType::kF16;
  static constexpr double kTolerance = 0x1.0p-8;
};
template <>
struct Element<BFloat16> {
  static constexpr DType kType = DType::kBF16;
  static constexpr double kTolerance = 0x1.0p-5;
};

template <typename T>
T FromDouble(double value) {
  return static_cast<T>(value);
}
template <>
Float16 FromDouble(double value) {
  return ToFloat16(static_cast<float>(value));
}
template <>
BFloat16 FromDouble(double value) {
  return ToBFloat16(static_cast<float>(value));
}
template <typename T>
double ToDouble(T value) {
  if constexpr (std::is_arithmetic_v<T>) {
    return static_cast<double>(value);
  } else {
    return ToFloat(value);
  }
}

double Input(int rank, size_t index) {
  return (rank + 1) * static_cast<double>(index % 97 + 1);
}

double Expected(ReduceOp op, int world, size_t index) {
  const double sum = Input(0, index) * world * (world + 1) / 2;
  switch (op) {
    case ReduceOp::kSum:
      return sum;
    case ReduceOp::kMax:
      return Input(world - 1, index);
    case ReduceOp::kMin:
      return Input(0, index);
    case ReduceOp::kAverage:
      return sum / world;
  }
  return 0;
}

template <typename T>
std::vector<T> InputsOf(int rank, size_t count) {
  std::vector<T> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = FromDouble<T>(Input(rank, i));
  return values;
}

template <typename T, typename Expect>
absl::Status Compare(const std::vector<T>& values, const Expect& expected,
                     absl::string_view what) {
  for (size_t i = 0; i < values.size(); ++i) {
    const double value = ToDouble(values[i]);
    const double wanted = expected(i);
    if (std::abs(value - wanted) <= Element<T>::kTolerance * std::abs(wanted)) {
      continue;
    }
    return absl::DataLossError(absl::StrCat(what, ": element ", i, " of ",
                                            values.size(), " is ", value,
                                            ", not ", wanted));
  }
  return absl::OkStatus();
}

// `what` of which type and size, for errors.
std::string Name(absl::string_view what, DType dtype, size_t count) {
  return absl::StrCat(what, " of ", count, " ", ToString(dtype));
}

// The values in host memory, in memory from Allocate, and in both at once.
template <typename T>
absl::Status CheckReduce(Comm& comm, DeviceCopier& copier, std::byte* memory,
                         size_t count, ReduceOp op) {
  const std::vector<T> inputs = InputsOf<T>(comm.rank(), count);
  const auto expected = [&](size_t i) { return Expected(op, comm.world(), i); };
  const DType dtype = Element<T>::kType;
  const std::string name = Name(ToString(op), dtype, count);

  std::vector<T> host = inputs;
  COHORT_RETURN_IF_ERROR(
      comm.AllReduce({host.data(), count, dtype}, op, kLong));
  COHORT_RETURN_IF_ERROR(Compare(host, expected, name + " on the host"));

  std::vector<T> device = inputs;
  host = inputs;
  COHORT_RETURN_IF_ERROR(copier.Copy(memory, device.data(), count * sizeof(T)));
  const std::vector<Buffer> both = {{memory, count, dtype},
                                    {host.data(), count, dtype}};
  COHORT_RETURN_IF_ERROR(comm.AllReduce(both, op, kLong));
  COHORT_RETURN_IF_ERROR(copier.Copy(device.data(), memory, count * sizeof(T)));
  COHORT_RETURN_IF_ERROR(Compare(device, expected, name + " on the device"));
  return Compare(host, expected, name + " on the host beside the device");
}

template <typename T>
absl::Status CheckBroadcast(Comm& comm, DeviceCopier& copier, std::byte* memory,
                            size_t count, int root) {
  const DType dtype = Element<T>::kType;
  std::vector<T> values = InputsOf<T>(comm.rank(), count);
  COHORT_RETURN_IF_ERROR(copier.Copy(memory, values.data(), count * sizeof(T)));
  COHORT_RETURN_IF_ERROR(comm.Broadcast({memory, count, dtype}, root, kLong));
  COHORT_RETURN_IF_ERROR(copier.Copy(values.data(), memory, count * sizeof(T)));
  return Compare(
      values, [&](size_t i) { return ToDouble(FromDouble<T>(Input(root, i))); },
      Name(absl::StrCat("broadcast from ", root), dtype, count));
}

template <typename T>
absl::Status CheckType(Comm& comm, DeviceCopier& copier) {
  COHORT_ASSIGN_OR_RETURN(const std::span<std::byte> memory,
                          comm.Allocate(std::end(kCounts)[-1] * sizeof(T)));
  const bool is_integer = std::is_integral_v<T>;
  for (const size_t count : kCounts) {
    for (const ReduceOp op :
         {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin, ReduceOp::kAverage}) {
      if (is_integer && op == ReduceOp::kAverage) continue;
      COHORT_RETURN_IF_ERROR(
          CheckReduce<T>(comm, copier, memory.data(), count, op));
    }
    for (int root = 0; root < comm.world(); ++root) {
      COHORT_RETURN_IF_ERROR(
          CheckBroadcast<T>(comm, copier, memory.data(), count, root));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckCollectives(Comm& comm, DeviceCopier& copier) {
  COHORT_RETURN_IF_ERROR(comm.Barrier(kLong));
  COHORT_RETURN_IF_ERROR(CheckType<float>(comm, copier));
  COHORT_RETURN_IF_ERROR(CheckType<double>(comm, copier));
  COHORT_RETURN_IF_ERROR(CheckType<int32_t>(comm, copier));
  COHORT_RETURN_IF_ERROR(CheckType<int64_t>(comm, copier));
  COHORT_RETURN_IF_ERROR(CheckType<Float16>(comm, copier));
  COHORT_RETURN_IF_ERROR(CheckType<BFloat16>(comm, copier));
  return comm.Barrier(kLong);
}

absl::Status CheckRepeats(Comm& comm, DeviceCopier& copier) {
  constexpr size_t kCount = 100'000;
  COHORT_ASSIGN_OR_RETURN(const std::span<std::byte> memory,
                          comm.Allocate(kCount * sizeof(float)));
  const std::vector<float> inputs = InputsOf<float>(comm.rank(), kCount);
  std::vector<float> values(kCount);
  for (int round = 0; round < 20; ++round) {
    COHORT_RETURN_IF_ERROR(
        copier.Copy(memory.data(), inputs.data(), memory.size()));
    COHORT_RETURN_IF_ERROR(comm.AllReduce({memory.data(), kCount, DType::kF32},
                                          ReduceOp::kSum, kLong));
    COHORT_RETURN_IF_ERROR(
        copier.Copy(values.data(), memory.data(), memory.size()));
    COHORT_RETURN_IF_ERROR(Compare(
        values,
        [&](size_t i) { return Expected(ReduceOp::kSum, comm.world(), i); },
        absl::StrCat("round ", round)));
  }
  return absl::OkStatus();
}

absl::Status CheckMismatch(Comm& comm) {
  // Of no size that all have agreed on before: that would be launched first.
  std::vector<float> values(comm.rank() == 0 ? 2000 : 2001, 1.0f);
  const absl::Status refused =
      comm.AllReduce(Buffer::Of(std::span(values)), ReduceOp::kSum, kLong);
  if (!absl::IsInvalidArgument(refused)) {
    return absl::DataLossError(
        absl::StrCat("2000 and 2001 elements give ", refused.ToString()));
  }
  if (std::any_of(values.begin(), values.end(),
                  [](float value) { return value != 1.0f; })) {
    return absl::DataLossError("a refused call wrote to its buffer");
  }
  return comm.Barrier(kLong);
}

absl::Status CheckTooMuchMemory(Comm& comm) {
  const auto memory = comm.Allocate(size_t{1} << 50);
  if (!absl::IsResourceExhausted(memory.status())) {
    return absl::DataLossError(
        absl::StrCat("1 PiB gives ", memory.status().ToString()));
  }
  float value = 1;
  COHORT_RETURN_IF_ERROR(
      comm.AllReduce(Buffer::Of(std::span(&value, 1)), ReduceOp::kSum, kLong));
  return value == static_cast<float>(comm.world())
             ? absl::OkStatus()
             : absl::DataLossError(absl::StrCat("a sum of ones is ", value));
}

}  // namespace cohort::trainer
