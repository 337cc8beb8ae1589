// What must not compile.  compile_errors.py compares what the compiler says of
// this file with the comments that begin with "error:", each of which stands
// before the line that it is about.  No error may bring others along.
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "actor/codec.h"
#include "actor/function.h"
#include "actor/group.h"
#include "actor/handle.h"
#include "actor/method.h"

namespace misuse {

// A pointer means nothing elsewhere.
struct NoCodec {
  int field = 0;
  const char* text = nullptr;
};

struct HoldsNoCodec {
  NoCodec inner;
  COHORT_FIELDS(inner)
};

class Actor {
 public:
  explicit Actor(std::map<int, std::string> /*names*/) {}

  int Add(int n) { return n; }
  void Reset() {}
  void ByReference(std::string& /*out*/) {}
  void ByPointer(const int* /*numbers*/) {}
  void TakesNoCodec(const NoCodec& /*value*/) {}
  NoCodec GivesNoCodec() { return {}; }
  absl::StatusOr<std::vector<NoCodec>> GivesNoCodecs() {
    return absl::AbortedError("");
  }
  absl::string_view GivesView() const { return ""; }
  std::unique_ptr<int> GivesOwned() { return nullptr; }
  int Consumes() && { return 1; }

  int field = 0;
};

class Stranger {
 public:
  int Add(int n) { return n; }
  void Remove() {}
};

namespace {
class Hidden {
 public:
  int Add(int n) { return n; }
};
}  // namespace

void Calls(const cohort::Handle<Actor>& actor) {
  // error: an argument does not convert to the method's parameter type
  actor.Call<&Actor::Add>("text");
  // error: wrong number of arguments for this method
  actor.Call<&Actor::Add>();
  std::string text;
  // error: T& and T* cannot cross processes
  actor.Call<&Actor::ByReference>(text);
  // error: T& and T* cannot cross processes
  actor.Call<&Actor::ByPointer>(nullptr);
  // error: a parameter type has no Codec
  actor.Call<&Actor::TakesNoCodec>(NoCodec());
  // error: a result type has no Codec
  actor.Call<&Actor::GivesNoCodec>();
  // error: a result type has no Codec
  actor.Call<&Actor::GivesNoCodecs>();
  // error: a method's result cannot be a view
  actor.Call<&Actor::GivesView>();
  // error: Call takes a method
  actor.Call<&Actor::field>();
  // error: Call takes a method
  actor.Call<&Actor::Consumes>();
  // error: this is not a method of the handle's class
  actor.Call<&Stranger::Add>(1);
}

struct Joins {
  std::string operator()(std::string a, std::string b) const { return a + b; }
};

namespace {
struct HiddenSum {
  int operator()(int a, int b) const { return a + b; }
};
}  // namespace

void GroupCalls(const cohort::Group<Actor>& group, const std::string& text) {
  // error: an argument does not convert to the method's parameter type
  group.Call<&Actor::Add>(text);
  // error: this is not a method of the handle's class
  group.CallEach<&Stranger::Remove>();
  // error: the reducer does not make one result of two
  group.Reduce<&Actor::Add, Joins>(1);
  // error: a reducer must be a class outside of anonymous namespaces
  group.Reduce<&Actor::Add, HiddenSum>(1);
  // error: this method has no result to reduce
  group.Reduce<&Actor::Reset, cohort::Sum>();
}

void OfAHiddenClass(const cohort::Handle<Hidden>& actor) {
  // error: an actor's class must be a class outside of anonymous namespaces
  actor.Call<&Hidden::Add>(1);
}

void Construct() {
  // error: the class has no constructor for these arguments
  cohort::actor::EncodeConstructor<Actor>(1, "text");
  // error: a type of a constructor's argument has no Codec
  cohort::actor::EncodeConstructor<Actor>(NoCodec());
}

class OnlySaves {
 public:
  std::string Save() const { return ""; }
};
class RestoresAnother {
 public:
  std::string Save() const { return ""; }
  void Restore(int /*state*/) {}
};

void States(const cohort::Handle<Actor>& actor) {
  // error: the actor's class has no Save() and Restore(state)
  (void)actor.Save();
  // error: an actor's class with Save() needs Restore(state)
  (void)cohort::actor::CheckState<OnlySaves>();
  // error: Restore does not take what Save gives
  (void)cohort::actor::CheckState<RestoresAnother>();
}

double Scale(double by) { return by; }
void OutByReference(int& /*out*/) {}
std::map<int, NoCodec> MakesNoCodec() { return {}; }
namespace {
int HiddenFunction() { return 0; }
}  // namespace

void Tasks() {
  // error: an argument does not convert to the method's parameter type
  cohort::Run<&Scale>("text");
  // error: wrong number of arguments for this method
  cohort::Run<&Scale>();
  int out = 0;
  // error: T& and T* cannot cross processes
  cohort::Run<&OutByReference>(out);
  // error: a result type has no Codec
  cohort::Run<&MakesNoCodec>();
  // error: Run takes a free function or a static method
  cohort::Run<&Actor::Add>(1);
  // error: a task must be a function outside of anonymous namespaces
  cohort::Run<&HiddenFunction>();
}

void GetTwice(const cohort::Handle<Actor>& actor) {
  const auto owned = actor.Call<&Actor::GivesOwned>();
  // error: this value cannot be copied: take it out with
  (void)owned.Get();
}

void Encode() {
  // error: a type has no Codec
  (void)cohort::EncodeValue(HoldsNoCodec());
}

}  // namespace misuse
