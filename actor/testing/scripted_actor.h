#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "cohort/v1/actor.pb.h"
#include "common/strand.h"
#include "common/testing/manual_executor.h"
#include "rpc/authenticator.h"
#include "rpc/credential.h"
#include "rpc/methods.h"
#include "rpc/router.h"

namespace cohort::actor {

// An actor's process of which a test says every word: keeps what callers send
// and answers what it is told.  Thread-compatible.
class ScriptedActor {
 public:
  ScriptedActor(ManualExecutor& executor, const std::string& secret)
      : strand_(executor),
        router_({}, rpc::Authenticator(*rpc::Credential::FromBytes(secret)),
                executor) {
    router_.HandleStream(
        rpc::kCallActor, strand_,
        [this](const auto&, auto writer)
            -> absl::StatusOr<
                std::unique_ptr<rpc::StreamReader<v1::ActorCalls>>> {
          writer_ = writer.get();
          return std::make_unique<Reader>(*this, std::move(writer));
        });
  }

  rpc::Router& router() { return router_; }

  // Whether `open` is answered.
  void set_accepts(bool accepts) { accepts_ = accepts; }
  // Of all streams, but for `open`.
  const std::vector<v1::ActorCalls>& messages() const { return messages_; }
  const std::vector<v1::ActorCalls::Open>& opens() const { return opens_; }
  // Which of the process's each call was to.
  std::vector<uint32_t> called_actors() const {
    std::vector<uint32_t> actors;
    for (const v1::ActorCalls& message : messages_) {
      for (const auto& call : message.calls()) actors.push_back(call.actor());
    }
    return actors;
  }
  // The arguments of the calls in all messages.
  std::vector<std::string> calls() const {
    std::vector<std::string> calls;
    for (const v1::ActorCalls& message : messages_) {
      for (const auto& call : message.calls())
        calls.push_back(call.arguments());
    }
    return calls;
  }

  // On the last stream, which is open.
  void Answer(uint64_t sequence, const std::string& value) {
    v1::ActorResults results;
    v1::ActorResults::Result& result = *results.add_results();
    result.set_sequence(sequence);
    result.set_value(value);
    writer_->Write(results).IgnoreError();
  }
  void Fail(uint64_t sequence, const v1::CallFailure& failure) {
    v1::ActorResults results;
    v1::ActorResults::Result& result = *results.add_results();
    result.set_sequence(sequence);
    *result.mutable_failure() = failure;
    writer_->Write(results).IgnoreError();
  }
  void Forget(uint64_t sequence) {
    v1::ActorResults results;
    v1::ActorResults::Result& result = *results.add_results();
    result.set_sequence(sequence);
    result.set_forgotten(true);
    writer_->Write(results).IgnoreError();
  }
  void Close(absl::Status status) { writer_->Close(std::move(status)); }

 private:
  using Writer = rpc::StreamWriter<v1::ActorResults>;

  class Reader final : public rpc::StreamReader<v1::ActorCalls> {
   public:
    Reader(ScriptedActor& actor, std::unique_ptr<Writer> writer)
        : actor_(actor), writer_(std::move(writer)) {}

    void OnMessage(const v1::ActorCalls& message) override {
      if (!message.has_open()) return actor_.messages_.push_back(message);
      actor_.opens_.push_back(message.open());
      if (actor_.accepts_) writer_->Write(v1::ActorResults()).IgnoreError();
    }
    void OnClosed(absl::Status /*status*/) override {}

   private:
    ScriptedActor& actor_;
    const std::unique_ptr<Writer> writer_;
  };

  Strand strand_;
  bool accepts_ = true;
  std::vector<v1::ActorCalls> messages_;
  std::vector<v1::ActorCalls::Open> opens_;
  Writer* writer_ = nullptr;
  rpc::Router router_;
};

}  // namespace cohort::actor
