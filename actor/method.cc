#include "actor/method.h"

#include <string>
#include <typeinfo>
#include <unordered_map>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

#include "actor/call_error.h"
#include "actor/demangle.h"
#include "common/mutex.h"
#include "common/status_util.h"

namespace cohort::actor {
namespace {

bool operator==(const MethodEntry& a, const MethodEntry& b) {
  return a.invoke == b.invoke;
}
bool operator==(const ConstructorEntry& a, const ConstructorEntry& b) {
  return a.construct == b.construct;
}

// What is registered under names.  Thread-safe: a shared object that is opened
// later registers, too.
template <typename Entry>
class Names {
 public:
  void Add(const char* name, const Entry& entry) {
    MutexLock lock(mutex_);
    const auto [at, is_new] = entries_.emplace(name, entry);
    if (!is_new && !(at->second == entry)) twice_ = name;
  }

  // Null when there is none.  Lives as long as the program.
  const Entry* Find(const std::string& name) const {
    MutexLock lock(mutex_);
    const auto at = entries_.find(name);
    return at == entries_.end() ? nullptr : &at->second;
  }

  // As it lives as long as the program; null when there is none.
  const char* NameOf(const std::string& name) const {
    MutexLock lock(mutex_);
    const auto at = entries_.find(name);
    return at == entries_.end() ? nullptr : at->first.c_str();
  }

  // A name that two functions have; "" when there is none.
  std::string Twice() const {
    MutexLock lock(mutex_);
    return twice_;
  }

 private:
  mutable Mutex mutex_;
  // Entries stay where they are.
  std::unordered_map<std::string, Entry> entries_ ABSL_GUARDED_BY(mutex_);
  std::string twice_ ABSL_GUARDED_BY(mutex_);
};

// Made when the first file of the program registers something, never ended.
Names<MethodEntry>& Methods() {
  static auto* const methods = new Names<MethodEntry>;
  return *methods;
}
Names<ConstructorEntry>& Constructors() {
  static auto* const constructors = new Names<ConstructorEntry>;
  return *constructors;
}

absl::Status NoMethod(absl::string_view message) {
  return SetReason(absl::UnimplementedError(message), kReasonNoMethod);
}

// What lies between the brackets of `tag`; "" when `text` names no such tag.
absl::string_view InTag(absl::string_view text, absl::string_view tag) {
  const bool is_tag = absl::ConsumePrefix(&text, "cohort::actor::") &&
                      absl::ConsumePrefix(&text, tag) &&
                      absl::ConsumePrefix(&text, "<") &&
                      absl::ConsumeSuffix(&text, ">");
  return is_tag ? absl::StripSuffix(text, " ") : "";
}

// The first template argument of `arguments`; the others are left there.
absl::string_view TakeClass(absl::string_view& arguments) {
  int depth = 0;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const char c = arguments[i];
    if (c == '<' || c == '(') ++depth;
    if (c == '>' || c == ')') --depth;
    if (depth > 0 || c != ',') continue;
    const absl::string_view first = arguments.substr(0, i);
    arguments.remove_prefix(i + 1);
    absl::ConsumePrefix(&arguments, " ");
    return first;
  }
  const absl::string_view all = arguments;
  arguments = absl::string_view();
  return all;
}

// "Add" of "&Add" and of "&(Add)".
absl::string_view FunctionInTag(absl::string_view argument) {
  absl::ConsumePrefix(&argument, "&");
  if (absl::ConsumePrefix(&argument, "(")) absl::ConsumeSuffix(&argument, ")");
  return argument;
}

// "Counter::Add" of "Counter, &Counter::Add".
absl::string_view MethodInTag(absl::string_view arguments) {
  TakeClass(arguments);
  return FunctionInTag(arguments);
}

}  // namespace

bool RegisterMethod(const char* name, const MethodEntry& entry) {
  Methods().Add(name, entry);
  return true;
}

bool RegisterConstructor(const char* name, const ConstructorEntry& entry) {
  Constructors().Add(name, entry);
  return true;
}

absl::Status RegistryStatus() {
  std::string name = Methods().Twice();
  if (name.empty()) name = Constructors().Twice();
  if (name.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("two functions of this program are called ",
                   MethodText(name), ": is the class defined twice?"));
}

absl::StatusOr<const char*> RegisteredMethod(const std::string& name) {
  const char* const lasting = Methods().NameOf(name);
  if (lasting != nullptr) return lasting;
  return NoMethod(
      absl::StrCat("this program has no method ", MethodText(name)));
}

std::string MethodText(const std::string& name) {
  std::string text = absl::StrReplaceAll(
      Demangle(name),
      {{"std::__cxx11::basic_string<char, std::char_traits<char>, "
        "std::allocator<char> >",
        "std::string"}});
  absl::string_view arguments = InTag(text, "MethodTag");
  if (!arguments.empty()) return std::string(MethodInTag(arguments));
  arguments = InTag(text, "FunctionTag");
  if (!arguments.empty()) return std::string(FunctionInTag(arguments));
  arguments = InTag(text, "ConstructorTag");
  if (arguments.empty()) return text;
  const absl::string_view type = TakeClass(arguments);
  return absl::StrCat(type, "(", arguments, ")");
}

absl::Status BadArguments() {
  return SetReason(
      absl::InvalidArgumentError("the arguments could not be decoded"),
      kReasonBadArguments);
}

absl::StatusOr<Instance> Instance::Construct(const std::string& constructor,
                                             absl::string_view arguments) {
  const ConstructorEntry* const entry = Constructors().Find(constructor);
  if (entry == nullptr) {
    return NoMethod(absl::StrCat("this program does not construct ",
                                 MethodText(constructor)));
  }
  try {
    const absl::StatusOr<void*> object = entry->construct(arguments);
    if (!object.ok()) return object.status();
    return Instance(*object, *entry);
  } catch (...) {
    return ExceptionStatus();
  }
}

absl::StatusOr<std::string> Instance::Invoke(const std::string& method,
                                             absl::string_view arguments) {
  const MethodEntry* const entry = Methods().Find(method);
  if (entry == nullptr) {
    return NoMethod(
        absl::StrCat("this program has no method ", MethodText(method)));
  }
  if (*entry->type != *entry_->type) {
    return NoMethod(
        absl::StrCat("the actor is a ", Demangle(entry_->type->name()),
                     ", which is not the class of ", MethodText(method)));
  }
  try {
    return entry->invoke(object_.get(), arguments);
  } catch (...) {
    return ExceptionStatus();
  }
}

absl::StatusOr<std::string> Instance::Save() {
  if (!HasState()) {
    return NoMethod(absl::StrCat("a ", Demangle(entry_->type->name()),
                                 " has no Save and Restore"));
  }
  try {
    return entry_->save(object_.get());
  } catch (...) {
    return ExceptionStatus();
  }
}

absl::Status Instance::Restore(absl::string_view state) {
  if (!HasState()) return BadState();
  try {
    return entry_->restore(object_.get(), state);
  } catch (...) {
    return ExceptionStatus();
  }
}

absl::Status BadState() {
  return absl::InvalidArgumentError(
      "the saved state is that of another class, or of another version of it");
}

}  // namespace cohort::actor
