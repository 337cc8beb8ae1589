#include "actor/method.h"

#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "actor/call_error.h"
#include "actor/function.h"
#include "common/status_util.h"
#include "common/testing/status_matchers.h"

namespace cohort::method_test {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class Base {
 public:
  virtual ~Base() = default;
  int Inherited(int n) const { return n + own_; }

 private:
  int own_ = 1000;
};

struct Padding {
  virtual ~Padding() = default;
  int there = 1;
};

// Base does not lie at its beginning.
class Counter : public Padding, public Base {
 public:
  Counter() = default;
  Counter(int start, std::string name)
      : value_(start), name_(std::move(name)) {}
  explicit Counter(const std::vector<int>& numbers)
      : value_(static_cast<int>(numbers.size())) {}
  explicit Counter(bool /*fails*/) {
    throw std::runtime_error("no luck");  // NOLINT(cohort-throw): a user's
  }

  int Add(int n) { return value_ += n; }
  int Mul(int by) noexcept { return value_ *= by; }
  double Mul(double by) const { return value_ * by; }
  const std::string& Name() const& { return name_; }
  void Reset() { value_ = 0; }
  absl::Status Check(int limit) const {
    if (value_ <= limit) return absl::OkStatus();
    return SetReason(absl::OutOfRangeError("too much"), "over_limit");
  }
  absl::StatusOr<std::string> Word(const std::string& word) const {
    if (word.empty()) return absl::NotFoundError("no word");
    return word + word;
  }
  Future<int> Later(int n) { return n + 1; }
  Future<void> Never() { return absl::AbortedError("not now"); }
  std::unique_ptr<int> Own(std::unique_ptr<int> number, std::string&& text) {
    *number += static_cast<int>(text.size());
    return number;
  }
  float Sum(std::span<const float> numbers, absl::string_view unit) const {
    float sum = static_cast<float>(unit.size());
    for (const float number : numbers) sum += number;
    return sum;
  }
  template <typename T>
  T As() const {
    return static_cast<T>(value_);
  }
  int Fail(int what) {
    if (what == 0) {
      throw std::out_of_range("beyond");  // NOLINT(cohort-throw): a user's
    }
    throw what;  // NOLINT(cohort-throw): a user's
  }

 private:
  int value_ = 0;
  std::string name_;
};

class Other {
 public:
  int Add(int n) { return n; }
  int Uncalled() { return 1; }
  int AlsoUncalled() { return 2; }
};

class Album {
 public:
  absl::StatusOr<std::string> Save() const {
    if (text_.empty()) return absl::NotFoundError("nothing in it");
    return text_;
  }
  absl::Status Restore(absl::string_view text) {
    if (text == "torn") return absl::DataLossError("torn");
    if (text == "odd") {
      throw std::runtime_error("odd");  // NOLINT(cohort-throw): a user's
    }
    text_ = std::string(text);
    return absl::OkStatus();
  }

 private:
  std::string text_;
};

// None of the library's business.
class Editor {
 public:
  void Save(const std::string& /*path*/) {}
  void Save() {}
  absl::Status Restore() { return absl::OkStatus(); }
};

actor::Instance AlbumInstance() {
  return *actor::Instance::Construct(actor::EncodeConstructor<Album>().name,
                                     "");
}

TEST(StateTest, IsSavedAndRestored) {
  actor::Instance album = AlbumInstance();
  EXPECT_TRUE(album.HasState());
  EXPECT_THAT(album.Save(), StatusIs(absl::StatusCode::kNotFound));
  COHORT_EXPECT_OK(album.Restore(*EncodeValue(std::string("a song"))));
  const absl::StatusOr<std::string> saved = album.Save();
  COHORT_ASSERT_OK(saved);
  actor::Instance next = AlbumInstance();
  COHORT_EXPECT_OK(next.Restore(*saved));
  EXPECT_EQ(*next.Save(), *saved);
}

TEST(StateTest, SaysWhyItCannotBeRestored) {
  actor::Instance album = AlbumInstance();
  EXPECT_THAT(album.Restore(*EncodeValue(std::string("torn"))),
              StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_EQ(GetReason(album.Restore(*EncodeValue(std::string("odd")))),
            kReasonException);
  EXPECT_THAT(album.Restore("no text"),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(StateTest, IsOfClassesThatHaveBoth) {
  actor::Instance editor =
      *actor::Instance::Construct(actor::EncodeConstructor<Editor>().name, "");
  EXPECT_FALSE(editor.HasState());
  EXPECT_EQ(GetReason(editor.Save().status()), kReasonNoMethod);
}

}  // namespace cohort::method_test

COHORT_ACTOR(cohort::method_test::Other, &cohort::method_test::Other::Uncalled,
             &cohort::method_test::Other::AlsoUncalled);
COHORT_ACTOR(cohort::method_test::Counter);

namespace cohort::method_test {

using actor::AutoConstructor;
using actor::AutoFunction;
using actor::AutoMethod;
using actor::Instance;
using actor::MethodText;

// As Create does it.
template <typename T, typename... A>
absl::StatusOr<Instance> Construct(A&&... args) {
  actor::ConstructorCall call =
      actor::EncodeConstructor<T>(std::forward<A>(args)...);
  COHORT_EXPECT_OK(call.arguments);
  return Instance::Construct(call.name, *call.arguments);
}

// As Handle does it.
template <auto M, typename T = Counter, typename... P>
auto Invoke(Instance& instance, P... args) {
  (void)&AutoMethod<T, M>::kRegistered;
  using R = actor::MethodResult<M>;
  const absl::StatusOr<std::string> bytes = instance.Invoke(
      AutoMethod<T, M>::Name(), *actor::WriteParameters(args...));
  if constexpr (std::is_void_v<R>) {
    return bytes.status();
  } else {
    return bytes.ok() ? DecodeValue<R>(*bytes)
                      : absl::StatusOr<R>(bytes.status());
  }
}

TEST(InstanceTest, ConstructsAndCalls) {
  absl::StatusOr<Instance> counter = Construct<Counter>(10, "ten");
  COHORT_ASSERT_OK(counter);
  EXPECT_THAT(Invoke<&Counter::Add>(*counter, 32), IsOkAndHolds(42));
  EXPECT_THAT(Invoke<&Counter::Name>(*counter), IsOkAndHolds("ten"));
  COHORT_EXPECT_OK(Invoke<&Counter::Reset>(*counter));
  EXPECT_THAT(Invoke<&Counter::Add>(*counter, 1), IsOkAndHolds(1));
}

TEST(InstanceTest, CallsInheritedOverloadedAndTemplateMethods) {
  absl::StatusOr<Instance> counter = Construct<Counter>(10, "ten");
  COHORT_ASSERT_OK(counter);
  EXPECT_THAT(Invoke<&Counter::Inherited>(*counter, 5), IsOkAndHolds(1005));
  EXPECT_THAT(
      Invoke<Overload<double(double) const>(&Counter::Mul)>(*counter, 0.5),
      IsOkAndHolds(5));
  EXPECT_THAT(Invoke<Overload<int(int) noexcept>(&Counter::Mul)>(*counter, 3),
              IsOkAndHolds(30));
  EXPECT_THAT(Invoke<&Counter::As<float>>(*counter), IsOkAndHolds(30));
  EXPECT_THAT(Invoke<&Counter::As<int>>(*counter), IsOkAndHolds(30));
}

TEST(InstanceTest, AnswersTheStatusThatAMethodReturned) {
  absl::StatusOr<Instance> counter = Construct<Counter>(10, "ten");
  COHORT_ASSERT_OK(counter);
  COHORT_EXPECT_OK(Invoke<&Counter::Check>(*counter, 100));
  const absl::Status status = Invoke<&Counter::Check>(*counter, 1);
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kOutOfRange, "too much"));
  EXPECT_EQ(GetReason(status), "over_limit");
  EXPECT_THAT(Invoke<&Counter::Word>(*counter, std::string("a")),
              IsOkAndHolds("aa"));
  EXPECT_THAT(Invoke<&Counter::Word>(*counter, std::string()),
              StatusIs(absl::StatusCode::kNotFound));
}

TEST(InstanceTest, WaitsForAFutureThatAMethodReturned) {
  absl::StatusOr<Instance> counter = Construct<Counter>();
  COHORT_ASSERT_OK(counter);
  EXPECT_THAT(Invoke<&Counter::Later>(*counter, 1), IsOkAndHolds(2));
  EXPECT_THAT(Invoke<&Counter::Never>(*counter),
              StatusIs(absl::StatusCode::kAborted));
}

TEST(InstanceTest, PassesWhatCanOnlyBeMovedAndViews) {
  absl::StatusOr<Instance> counter = Construct<Counter>();
  COHORT_ASSERT_OK(counter);
  const auto number = Invoke<&Counter::Own>(*counter, std::make_unique<int>(1),
                                            std::string("three"));
  COHORT_ASSERT_OK(number);
  EXPECT_EQ(**number, 6);
  EXPECT_THAT(Invoke<&Counter::Sum>(*counter, std::vector<float>{1, 2},
                                    std::string("kg")),
              IsOkAndHolds(5));
}

TEST(InstanceTest, TurnsExceptionsIntoStatuses) {
  absl::StatusOr<Instance> counter = Construct<Counter>();
  COHORT_ASSERT_OK(counter);
  const absl::Status known = Invoke<&Counter::Fail>(*counter, 0).status();
  EXPECT_THAT(known, StatusIs(absl::StatusCode::kUnknown, "beyond"));
  EXPECT_EQ(GetReason(known), kReasonException);
  EXPECT_THAT(
      Invoke<&Counter::Fail>(*counter, 7),
      StatusIs(absl::StatusCode::kUnknown, HasSubstr("exception of type int")));
  const absl::Status constructed = Construct<Counter>(true).status();
  EXPECT_THAT(constructed, StatusIs(absl::StatusCode::kUnknown, "no luck"));
  EXPECT_EQ(GetReason(constructed), kReasonException);
}

TEST(InstanceTest, RefusesWhatTheProgramDoesNotHave) {
  absl::StatusOr<Instance> counter = Construct<Counter>();
  COHORT_ASSERT_OK(counter);
  // As of a program in which Counter has a method more.
  const char* const name =
      typeid(actor::MethodTag<Counter, &Counter::As<double>>).name();
  const absl::Status missing = counter->Invoke(name, "").status();
  EXPECT_THAT(missing, StatusIs(absl::StatusCode::kUnimplemented,
                                HasSubstr("Counter::As<double>")));
  EXPECT_EQ(GetReason(missing), kReasonNoMethod);
  EXPECT_EQ(GetReason(counter->Invoke("\1?", "").status()), kReasonNoMethod);
  const absl::Status constructor = Instance::Construct("x", "").status();
  EXPECT_THAT(constructor, StatusIs(absl::StatusCode::kUnimplemented));
  EXPECT_EQ(GetReason(constructor), kReasonNoMethod);
}

TEST(InstanceTest, RefusesAMethodOfAnotherClass) {
  absl::StatusOr<Instance> counter = Construct<Counter>();
  COHORT_ASSERT_OK(counter);
  const absl::Status status = Invoke<&Other::Add, Other>(*counter, 1).status();
  EXPECT_THAT(status,
              StatusIs(absl::StatusCode::kUnimplemented,
                       AllOf(HasSubstr("Counter"), HasSubstr("Other::Add"))));
  EXPECT_EQ(GetReason(status), kReasonNoMethod);
}

TEST(InstanceTest, RefusesArgumentsThatAreNone) {
  absl::StatusOr<Instance> counter = Construct<Counter>(10, "ten");
  COHORT_ASSERT_OK(counter);
  const std::string name = AutoMethod<Counter, &Counter::Add>::Name();
  for (const std::string bytes : {"", "abc", "abcde"}) {
    const absl::Status status = counter->Invoke(name, bytes).status();
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument));
    EXPECT_EQ(GetReason(status), kReasonBadArguments);
  }
  EXPECT_EQ(
      GetReason(Instance::Construct(
                    AutoConstructor<Counter, int, std::string>::Name(), "abc")
                    .status()),
      kReasonBadArguments);
}

TEST(InstanceTest, SendsConstructorsTextsAndViewsAsWhatHoldsThem) {
  const std::vector<int> numbers = {1, 2, 3};
  absl::StatusOr<Instance> by_view =
      Construct<Counter>(std::span<const int>(numbers));
  COHORT_ASSERT_OK(by_view);
  EXPECT_THAT(Invoke<&Counter::Add>(*by_view, 0), IsOkAndHolds(3));
  absl::StatusOr<Instance> by_text =
      Construct<Counter>(1, absl::string_view("one"));
  COHORT_ASSERT_OK(by_text);
  EXPECT_THAT(Invoke<&Counter::Name>(*by_text), IsOkAndHolds("one"));
}

TEST(RegistryTest, KnowsWhatOnlyTheMacroNames) {
  const std::string constructor = typeid(actor::ConstructorTag<Other>).name();
  absl::StatusOr<Instance> other = Instance::Construct(constructor, "");
  COHORT_ASSERT_OK(other);
  using Tag = actor::MethodTag<Other, &Other::AlsoUncalled>;
  COHORT_EXPECT_OK(other->Invoke(typeid(Tag).name(), ""));
}

TEST(RegistryTest, TellsOfANameThatTwoFunctionsHave) {
  COHORT_EXPECT_OK(actor::RegistryStatus());
  using Add = AutoMethod<Counter, &Counter::Add>;
  // The same once more, as from a second shared object.
  actor::RegisterMethod(
      Add::Name(),
      {&typeid(Counter), &actor::InvokeMethod<Counter, &Counter::Add>});
  COHORT_EXPECT_OK(actor::RegistryStatus());
  actor::RegisterMethod(
      "twice", {&typeid(Counter), &actor::InvokeMethod<Other, &Other::Add>});
  actor::RegisterMethod(
      "twice",
      {&typeid(Counter), &actor::InvokeMethod<Counter, &Counter::Add>});
  EXPECT_THAT(
      actor::RegistryStatus(),
      StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("twice")));
}

int Twice(int n) { return 2 * n; }

TEST(MethodTextTest, NamesMethodsAsTheSourceDoes) {
  EXPECT_THAT((MethodText(AutoMethod<Counter, &Counter::Word>::Name())),
              AllOf(HasSubstr("cohort::method_test::Counter::Word"),
                    Not(HasSubstr("MethodTag"))));
  EXPECT_EQ((MethodText(AutoConstructor<Counter, int, std::string>::Name())),
            "cohort::method_test::Counter(int, std::string)");
  EXPECT_EQ((MethodText(AutoConstructor<Counter>::Name())),
            "cohort::method_test::Counter()");
  EXPECT_THAT(MethodText(AutoFunction<&Twice>::Name()),
              StartsWith("cohort::method_test::Twice"));
  EXPECT_EQ(MethodText(std::string("\1x", 2)), "\\x01x");
  EXPECT_LE(MethodText(std::string(100000, 'N')).size(), 200u);
}

}  // namespace cohort::method_test
