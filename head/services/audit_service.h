#pragma once

#include <functional>
#include <memory>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"

#include "cohort/v1/security.pb.h"
#include "common/executor.h"
#include "head/services/audit_buffer.h"
#include "head/services/state_host.h"
#include "head/store/store.h"
#include "rpc/router.h"

namespace cohort::head {

using AuditRead =
    absl::AnyInvocable<void(absl::StatusOr<v1::ListAuditResponse>) &&>;

// Reads a page of the audit log; on the store's executor.  Errors of the store.
absl::StatusOr<v1::ListAuditResponse> ReadAudit(
    Store& store, const v1::ListAuditRequest& request);

// The audit log: who made which call that changes something, and what came of
// it.  Stands around the handlers of all methods that rpc/methods.h does not
// exempt, so that a new one is in the log by itself.
//
//   AL-2: a call that was answered OK has a row, which is durable with the
//         change that it made.  Not those of programs about their own actors.
//   AL-3: a call that was refused writes nothing by itself (AuditBuffer).
//
// Strand-bound; HeadCore owns it.  Calls may outlive it by a task.
class AuditService final {
 public:
  using Read = std::function<void(v1::ListAuditRequest, AuditRead done)>;

  // `buffer` has what the router refused, too; null: there is no log.  All
  // outlive the service.
  AuditService(StateHost& host, Read read, std::shared_ptr<AuditBuffer> buffer,
               Executor& strand);
  ~AuditService();

  AuditService(const AuditService&) = delete;
  AuditService& operator=(const AuditService&) = delete;

  void RegisterOn(rpc::Router& router);

  // Adds the row of the call that is being handled, if this is its change.
  void AddTo(ClusterState& state, Transition& transition);
  // Adds the rows of calls that changed nothing.
  void Flush(ClusterState& state, Transition& transition);

 private:
  class Answer;
  using Context = std::shared_ptr<rpc::CallContext>;
  using Message = rpc::Router::Message;

  void Handle(const rpc::Router::Method& method, const Context& context,
              const Message& request, std::shared_ptr<rpc::ReplySink> sink);
  // It is of a program about an actor of its own.
  bool IsOfProgram(const rpc::Principal& principal, const AuditRecord& call,
                   const Message& request);
  void Write(AuditRecord call);

  StateHost& host_;
  const Read read_;
  // Shared: this and the router's observer.
  const std::shared_ptr<AuditBuffer> buffer_;
  Executor& strand_;
  // Of the handler that runs; null: none does.
  Answer* present_ = nullptr;

  // Shared: this and its calls, which find it empty once this is gone.
  const std::shared_ptr<AuditService*> self_;
};

}  // namespace cohort::head
