#include "rpc/testing/loopback.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"

#include "common/mutex.h"
#include "rpc/client_stream.h"
#include "rpc/testing/loopback_call.h"
#include "rpc/testing/loopback_wires.h"

namespace cohort::rpc {
namespace {

// The client's end of the network.  Thread-safe.
class LoopbackChannel final : public Channel {
 public:
  LoopbackChannel(std::shared_ptr<LoopbackWires> wires, std::string from,
                  std::string to, const Credential& credential,
                  ChannelOptions options)
      : wires_(std::move(wires)),
        from_(std::move(from)),
        to_(std::move(to)),
        authorization_(credential.AuthorizationHeader()),
        options_(options) {}

  ~LoopbackChannel() override {
    MutexLock lock(mutex_);
    if (connection_ == nullptr) return;
    for (const auto& call : wires_->CallsOf(*connection_)) call->Cancel();
  }

  CallHandle StartUnary(absl::string_view path, std::string request,
                        CallOptions options, Executor& where,
                        Done done) override {
    const auto call = NewCall(path, options, where, std::move(done), nullptr);
    call->Begin(std::move(request));
    return CallHandle(call);
  }

  std::unique_ptr<ClientStream> OpenStream(absl::string_view path,
                                           CallOptions options, Executor& where,
                                           StreamEvents events) override {
    auto stream =
        std::make_shared<OutgoingStream>(options_, where, std::move(events));
    NewCall(path, options, where, nullptr, stream)->Begin(std::nullopt);
    return HoldStream(std::move(stream));
  }

  const std::string& address() const override { return to_; }

 private:
  std::shared_ptr<LoopbackCall> NewCall(absl::string_view path,
                                        CallOptions options, Executor& where,
                                        Done done,
                                        std::shared_ptr<OutgoingStream> stream)
      ABSL_LOCKS_EXCLUDED(mutex_) {
    std::shared_ptr<LoopbackConnection> connection;
    {
      MutexLock lock(mutex_);
      connection_ = wires_->Connect(connection_, from_, to_);
      connection = connection_;
    }
    return std::make_shared<LoopbackCall>(
        wires_, std::move(connection),
        LoopbackCall::Options{.path = std::string(path),
                              .authorization = authorization_,
                              .deadline = options.deadline,
                              .response_bytes_max = options_.message_bytes_max,
                              .where = &where,
                              .done = std::move(done),
                              .stream = std::move(stream)});
  }

  const std::shared_ptr<LoopbackWires> wires_;
  const std::string from_;
  const std::string to_;
  const std::string authorization_;
  const ChannelOptions options_;

  Mutex mutex_;
  std::shared_ptr<LoopbackConnection> connection_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

LoopbackNetwork::LoopbackNetwork(LoopbackOptions options, Executor& executor,
                                 const Clock& clock, Random& random)
    : wires_(
          std::make_shared<LoopbackWires>(options, executor, clock, random)) {}

LoopbackNetwork::~LoopbackNetwork() { wires_->Close(); }

void LoopbackNetwork::Listen(const std::string& name, Router* router) {
  wires_->Listen(name, router);
}

void LoopbackNetwork::Unlisten(const std::string& name) {
  wires_->Unlisten(name, BreakKind::kNetwork);
}

void LoopbackNetwork::Kill(const std::string& name) {
  wires_->Unlisten(name, BreakKind::kServerKilled);
}

std::unique_ptr<Channel> LoopbackNetwork::Connect(const std::string& from,
                                                  const std::string& to,
                                                  const Credential& credential,
                                                  ChannelOptions options) {
  return std::make_unique<LoopbackChannel>(wires_, from, to, credential,
                                           options);
}

void LoopbackNetwork::Partition(const std::string& a, const std::string& b) {
  wires_->Partition(a, b);
}

void LoopbackNetwork::Heal(const std::string& a, const std::string& b) {
  wires_->Heal(a, b);
}

void LoopbackNetwork::HealAll() { wires_->HealAll(); }

void LoopbackNetwork::BreakAll(const std::string& name) {
  wires_->BreakAll(name);
}

void LoopbackNetwork::SilenceAfter(const std::string& name, int frames) {
  wires_->SilenceAfter(name, frames);
}

void LoopbackNetwork::SetBreakProbability(double probability) {
  wires_->SetBreakProbability(probability);
}

LoopbackFaults LoopbackNetwork::faults() const { return wires_->faults(); }

}  // namespace cohort::rpc
