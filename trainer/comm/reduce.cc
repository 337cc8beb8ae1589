#include "trainer/comm/reduce.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

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

// A tile of a type that is combined as another, there and back.
struct ByArithmetic {
  template <typename T>
  static COHORT_INLINE void WidenAll(const T* __restrict from,
                                     float* __restrict to, size_t count) {
    for (size_t i = 0; i < count; ++i) to[i] = Widen(from[i]);
  }
  template <typename T>
  static COHORT_INLINE void NarrowAll(const float* __restrict from,
                                      T* __restrict to, size_t count) {
    for (size_t i = 0; i < count; ++i) to[i] = Narrow<T>(from[i]);
  }
};

#if defined(__x86_64__)
// The same bits: NaN gets the ones that ToFloat16 gives it.
struct ByInstruction : ByArithmetic {
  using ByArithmetic::NarrowAll;
  using ByArithmetic::WidenAll;

  __attribute__((target("avx2,f16c"))) static void WidenAll(
      const Float16* __restrict from, float* __restrict to, size_t count) {
    size_t i = 0;
    for (; i + 8 <= count; i += 8) {
      const __m128i halves =
          _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i));
      _mm256_storeu_ps(to + i, _mm256_cvtph_ps(halves));
    }
    for (; i < count; ++i) to[i] = ToFloat(from[i]);
  }

  __attribute__((target("avx2,f16c"))) static void NarrowAll(
      const float* __restrict from, Float16* __restrict to, size_t count) {
    const __m256 sign = _mm256_set1_ps(-0.0f);
    const __m256 quiet = _mm256_castsi256_ps(_mm256_set1_epi32(0x7FC00000));
    size_t i = 0;
    for (; i + 8 <= count; i += 8) {
      const __m256 value = _mm256_loadu_ps(from + i);
      const __m256 nan = _mm256_or_ps(_mm256_and_ps(value, sign), quiet);
      const __m256 clean = _mm256_blendv_ps(
          value, nan, _mm256_cmp_ps(value, value, _CMP_UNORD_Q));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i),
                       _mm256_cvtps_ph(clean, _MM_FROUND_TO_NEAREST_INT));
    }
    for (; i < count; ++i) to[i] = ToFloat16(from[i]);
  }
};
#endif

// The mean of `count` values is their sum, each times `scale`, by `divisor`:
// scaled by a power of two, which is exact, so that no sum is beyond the
// largest of them.
template <typename Wide>
struct MeanFactors {
  Wide scale = 1;
  Wide divisor;

  explicit MeanFactors(size_t count) : divisor(static_cast<Wide>(count)) {
    while (divisor > 1) {
      scale /= 2;
      divisor /= 2;
    }
  }
};

template <typename T, typename Op, bool kDivide, typename Convert>
struct Kernel {
  using Wide = decltype(Widen(T{}));
  static constexpr bool kIsWide = std::is_same_v<T, Wide>;

  // Two ranks in place, the common case on a small node: one pass.
  static COHORT_INLINE void RunPair(T* __restrict a, T* __restrict b,
                                    size_t count) {
    for (size_t i = 0; i < count; ++i) {
      Wide from_a = Widen(a[i]);
      Wide from_b = Widen(b[i]);
      if constexpr (kDivide) {
        from_a *= Wide{0.5};
        from_b *= Wide{0.5};
      }
      const Wide value = Op::Apply(from_a, from_b);
      a[i] = Narrow<T>(value);
      b[i] = Narrow<T>(value);
    }
  }

  // The elements of a source, as they are combined; in `memory` where those
  // are others.
  static COHORT_INLINE const Wide* Load(const std::byte* source, size_t begin,
                                        size_t count, Wide* memory) {
    const T* const from = reinterpret_cast<const T*>(source) + begin;
    if constexpr (kIsWide) {
      return from;
    } else {
      Convert::WidenAll(from, memory, count);
      return memory;
    }
  }

  static COHORT_INLINE void RunTile(const Reduction& reduction, size_t begin,
                                    size_t count) {
    [[maybe_unused]] const MeanFactors<Wide> mean(
        reduction.mean_of > 0 ? static_cast<size_t>(reduction.mean_of)
                              : reduction.sources.size());
    Wide tile[kTile];
    Wide loaded[kIsWide ? 1 : kTile];
    const Wide* __restrict const first =
        Load(reduction.sources[0], begin, count, loaded);
    for (size_t i = 0; i < count; ++i) {
      tile[i] = kDivide ? first[i] * mean.scale : first[i];
    }
    for (const std::byte* const source : reduction.sources.subspan(1)) {
      const Wide* __restrict const next = Load(source, begin, count, loaded);
      for (size_t i = 0; i < count; ++i) {
        tile[i] = Op::Apply(tile[i], kDivide ? next[i] * mean.scale : next[i]);
      }
    }
    if constexpr (kDivide) {
      for (size_t i = 0; i < count; ++i) tile[i] /= mean.divisor;
    }
    if constexpr (kIsWide) {
      Spread(reduction, tile, begin, count);
    } else {
      T narrow[kTile];
      Convert::NarrowAll(tile, narrow, count);
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
    // Of binary16 whole tiles are converted.
    if (!std::is_same_v<T, Float16> && reduction.sources.size() == 2 &&
        to.size() == 2 && reduction.mean_of == 0 &&
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

template <typename T, typename Convert>
COHORT_INLINE void RunOp(const Reduction& reduction, size_t begin, size_t end) {
  switch (reduction.op) {
    case ReduceOp::kSum:
      return Kernel<T, Sum, false, Convert>::Run(reduction, begin, end);
    case ReduceOp::kMax:
      return Kernel<T, Max, false, Convert>::Run(reduction, begin, end);
    case ReduceOp::kMin:
      return Kernel<T, Min, false, Convert>::Run(reduction, begin, end);
    case ReduceOp::kAverage:
      if constexpr (!std::is_integral_v<T>) {
        return Kernel<T, Sum, true, Convert>::Run(reduction, begin, end);
      }
  }
}

template <typename Convert>
COHORT_INLINE void RunType(const Reduction& reduction, size_t begin,
                           size_t end) {
  switch (reduction.dtype) {
    case DType::kF32:
      return RunOp<float, Convert>(reduction, begin, end);
    case DType::kF64:
      return RunOp<double, Convert>(reduction, begin, end);
    case DType::kI32:
      return RunOp<int32_t, Convert>(reduction, begin, end);
    case DType::kI64:
      return RunOp<int64_t, Convert>(reduction, begin, end);
    case DType::kF16:
      return RunOp<Float16, Convert>(reduction, begin, end);
    case DType::kBF16:
      return RunOp<BFloat16, Convert>(reduction, begin, end);
  }
}

using Runner = void (*)(const Reduction&, size_t, size_t);

void RunBaseline(const Reduction& reduction, size_t begin, size_t end) {
  RunType<ByArithmetic>(reduction, begin, end);
}

// By hand and not by target_clones, whose resolvers run before the sanitizers
// are ready.  Wider than this gains nothing: memory is the limit.
#if defined(__x86_64__)
__attribute__((target("avx2"))) void RunAvx2(const Reduction& reduction,
                                             size_t begin, size_t end) {
  RunType<ByInstruction>(reduction, begin, end);
}

// Asked by hand: clang 14 does not know its name.
bool HasF16c() {
  unsigned int a = 0;
  unsigned int b = 0;
  unsigned int c = 0;
  unsigned int d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

Runner ChooseRunner() {
  return __builtin_cpu_supports("avx2") && HasF16c() ? RunAvx2 : RunBaseline;
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
