#include "trainer/comm/reduce.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "trainer/comm/float16.h"

namespace cohort::trainer {
namespace {

#define COHORT_INLINE inline __attribute__((always_inline))

// Elements combined at a time when there are more than two ranks: 4 KiB of f32
// stay in the first-level cache until they are written to every destination.
constexpr size_t kTile = 1024;

struct Sum {
  template <typename T>
  static COHORT_INLINE T Apply(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      using Unsigned = std::make_unsigned_t<T>;
      return static_cast<T>(static_cast<Unsigned>(a) +
                            static_cast<Unsigned>(b));
    } else {
      return a + b;
    }
  }
};

// `a != a`: NaN on the left stays; on the right it fails the comparison and is
// taken.
struct Max {
  template <typename T>
  static COHORT_INLINE T Apply(T a, T b) {
    return ((a > b) | (a != a)) ? a : b;
  }
};
struct Min {
  template <typename T>
  static COHORT_INLINE T Apply(T a, T b) {
    return ((a < b) | (a != a)) ? a : b;
  }
};

// What elements of a type are combined as: themselves, or f32.
COHORT_INLINE float Widen(Float16 value) { return ToFloat(value); }
COHORT_INLINE float Widen(BFloat16 value) { return ToFloat(value); }
template <typename T>
COHORT_INLINE T Widen(T value) {
  return value;
}
template <typename T, typename Wide>
COHORT_INLINE T Narrow(Wide value) {
  if constexpr (std::is_same_v<T, Float16>) {
    return ToFloat16(value);
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    return ToBFloat16(value);
  } else {
    return value;
  }
}

template <typename T, typename Op, bool kDivide>
struct Kernel {
  using Wide = decltype(Widen(T{}));

  // Two ranks in place, the common case on a small node: one pass.
  static COHORT_INLINE void RunPair(T* __restrict a, T* __restrict b,
                                    size_t count) {
    for (size_t i = 0; i < count; ++i) {
      // A multiplication by one half is exact, as the division is.
      Wide value = Op::Apply(Widen(a[i]), Widen(b[i]));
      if constexpr (kDivide) value *= Wide{0.5};
      a[i] = Narrow<T>(value);
      b[i] = Narrow<T>(value);
    }
  }

  static COHORT_INLINE void RunTile(const Reduction& reduction, size_t begin,
                                    size_t count) {
    Wide tile[kTile];
    const T* __restrict const first =
        reinterpret_cast<const T*>(reduction.sources[0]) + begin;
    for (size_t i = 0; i < count; ++i) tile[i] = Widen(first[i]);
    for (const std::byte* const source : reduction.sources.subspan(1)) {
      const T* __restrict const from =
          reinterpret_cast<const T*>(source) + begin;
      for (size_t i = 0; i < count; ++i) {
        tile[i] = Op::Apply(tile[i], Widen(from[i]));
      }
    }
    if constexpr (kDivide) {
      const Wide divisor = static_cast<Wide>(reduction.sources.size());
      for (size_t i = 0; i < count; ++i) tile[i] /= divisor;
    }
    if constexpr (std::is_same_v<T, Wide>) {
      Spread(reduction, tile, begin, count);
    } else {
      T narrow[kTile];
      for (size_t i = 0; i < count; ++i) narrow[i] = Narrow<T>(tile[i]);
      Spread(reduction, narrow, begin, count);
    }
  }

  static COHORT_INLINE void Spread(const Reduction& reduction, const T* tile,
                                   size_t begin, size_t count) {
    for (std::byte* const destination : reduction.destinations) {
      std::memcpy(destination + begin * sizeof(T), tile, count * sizeof(T));
    }
  }

  static COHORT_INLINE void Run(const Reduction& reduction, size_t begin,
                                size_t end) {
    const auto& to = reduction.destinations;
    if (reduction.sources.size() == 2 && to.size() == 2 &&
        std::equal(to.begin(), to.end(), reduction.sources.begin())) {
      RunPair(reinterpret_cast<T*>(to[0]) + begin,
              reinterpret_cast<T*>(to[1]) + begin, end - begin);
      return;
    }
    for (size_t at = begin; at < end; at += kTile) {
      RunTile(reduction, at, std::min(kTile, end - at));
    }
  }
};

template <typename T>
COHORT_INLINE void RunOp(const Reduction& reduction, size_t begin, size_t end) {
  switch (reduction.op) {
    case ReduceOp::kSum:
      return Kernel<T, Sum, false>::Run(reduction, begin, end);
    case ReduceOp::kMax:
      return Kernel<T, Max, false>::Run(reduction, begin, end);
    case ReduceOp::kMin:
      return Kernel<T, Min, false>::Run(reduction, begin, end);
    case ReduceOp::kAverage:
      if constexpr (!std::is_integral_v<T>) {
        return Kernel<T, Sum, true>::Run(reduction, begin, end);
      }
  }
}

COHORT_INLINE void RunType(const Reduction& reduction, size_t begin,
                           size_t end) {
  switch (reduction.dtype) {
    case DType::kF32:
      return RunOp<float>(reduction, begin, end);
    case DType::kF64:
      return RunOp<double>(reduction, begin, end);
    case DType::kI32:
      return RunOp<int32_t>(reduction, begin, end);
    case DType::kI64:
      return RunOp<int64_t>(reduction, begin, end);
    case DType::kF16:
      return RunOp<Float16>(reduction, begin, end);
    case DType::kBF16:
      return RunOp<BFloat16>(reduction, begin, end);
  }
}

using Runner = void (*)(const Reduction&, size_t, size_t);

void RunBaseline(const Reduction& reduction, size_t begin, size_t end) {
  RunType(reduction, begin, end);
}

// By hand and not by target_clones, whose resolvers run before the sanitizers
// are ready.  Wider than this gains nothing: memory is the limit.
#if defined(__x86_64__)
__attribute__((target("avx2"))) void RunAvx2(const Reduction& reduction,
                                             size_t begin, size_t end) {
  RunType(reduction, begin, end);
}

Runner ChooseRunner() {
  return __builtin_cpu_supports("avx2") ? RunAvx2 : RunBaseline;
}
#else
Runner ChooseRunner() { return RunBaseline; }
#endif

}  // namespace

void Reduce(const Reduction& reduction, size_t begin, size_t end) {
  static const Runner runner = ChooseRunner();
  if (begin < end) runner(reduction, begin, end);
}

}  // namespace cohort::trainer
