#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"

#include "cohort/v1/actor.pb.h"
#include "common/testing/manual_executor.h"
#include "rpc/channel.h"
#include "rpc/credential.h"
#include "rpc/methods.h"
#include "rpc/testing/loopback.h"

namespace cohort::actor {

// Who calls, word by word.
class TestCaller {
 public:
  // Of the actor.
  static const rpc::Credential& Secret() {
    static const auto* const secret =
        new rpc::Credential(*rpc::Credential::FromBytes(std::string(32, 's')));
    return *secret;
  }

  TestCaller(rpc::LoopbackNetwork& network, ManualExecutor& executor,
             const std::string& name,
             const rpc::Credential& credential = Secret())
      : channel_(network.Connect(name, "actor", credential)), id_(name) {
    stream_ = rpc::OpenStream(
        *channel_, rpc::kCallActor, {.deadline = absl::InfiniteDuration()},
        executor,
        {.on_message =
             [this](const v1::ActorResults& message) {
               ++messages;
               for (const auto& result : message.results()) {
                 results.push_back(result);
               }
             },
         .on_closed =
             [this](absl::Status status, std::optional<rpc::Stamp>) {
               closed = std::move(status);
             },
         .on_drained = nullptr});
  }

  // With method 0, "echo".
  void Open(const std::string& job = "job", uint64_t incarnation = 3,
            uint64_t sent = 0) {
    v1::ActorCalls calls;
    calls.mutable_open()->set_sent(sent);
    calls.mutable_open()->set_job_id(job);
    calls.mutable_open()->set_incarnation(incarnation);
    calls.mutable_open()->set_caller(id_);
    calls.add_methods()->set_name("echo");
    Write(calls);
  }
  void Call(uint64_t sequence, const std::string& arguments,
            uint32_t method = 0) {
    v1::ActorCalls calls;
    AddCall(sequence, arguments, method, calls);
    Write(calls);
  }
  static void NameMethod(uint32_t number, const std::string& name,
                         v1::ActorCalls& calls) {
    v1::ActorCalls::Method& method = *calls.add_methods();
    method.set_number(number);
    method.set_name(name);
  }
  static void AddCall(uint64_t sequence, const std::string& arguments,
                      uint32_t method, v1::ActorCalls& calls) {
    v1::ActorCalls::Call& call = *calls.add_calls();
    call.set_sequence(sequence);
    call.set_method(method);
    call.set_arguments(arguments);
  }
  void CallActor(uint64_t sequence, uint32_t actor,
                 const std::string& arguments) {
    v1::ActorCalls calls;
    AddCall(sequence, arguments, 0, calls);
    calls.mutable_calls(0)->set_actor(actor);
    Write(calls);
  }
  void Cancel(uint64_t sequence) {
    v1::ActorCalls calls;
    calls.add_cancels(sequence);
    Write(calls);
  }
  void TellTaken(uint64_t messages_with_results) {
    v1::ActorCalls calls;
    calls.set_results_taken(messages_with_results);
    Write(calls);
  }
  void Withdraw(uint64_t sequence) {
    v1::ActorCalls calls;
    calls.add_withdrawals(sequence);
    Write(calls);
  }
  void Write(const v1::ActorCalls& calls) {
    stream_->Write(calls).IgnoreError();
  }
  void HalfClose() { stream_->HalfClose(); }
  void Leave() { stream_.reset(); }

  std::vector<std::string> Values() const {
    std::vector<std::string> values;
    for (const auto& result : results) values.push_back(result.value());
    return values;
  }

  std::vector<v1::ActorResults::Result> results;
  int messages = 0;
  std::optional<absl::Status> closed;

 private:
  const std::unique_ptr<rpc::Channel> channel_;
  const std::string id_;
  std::unique_ptr<rpc::TypedStream<v1::ActorCalls>> stream_;
};

}  // namespace cohort::actor
