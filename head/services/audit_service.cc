#include "head/services/audit_service.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"

#include "common/printable_text.h"
#include "common/status_macros.h"
#include "head/store/records_codec.h"
#include "rpc/methods.h"
#include "rpc/wire_values.h"

namespace cohort::head {
namespace {

using ::google::protobuf::FieldDescriptor;

constexpr int kEntriesMax = 1'000;
constexpr size_t kRowsMax = 2'000;
constexpr size_t kNamedBytesMax = 128;

// Fields that say what a request is about; and messages that have such ones.
constexpr absl::string_view kNames[] = {"name",       "node",       "node_id",
                                        "attempt_id", "hash",       "token_id",
                                        "directory",  "fingerprint"};
constexpr absl::string_view kParts[] = {"spec", "request"};

bool IsAmong(absl::string_view name, absl::Span<const absl::string_view> all) {
  return std::find(all.begin(), all.end(), name) != all.end();
}

void AddNamed(const google::protobuf::Message& request, AuditRecord& call) {
  const auto& reflection = *request.GetReflection();
  const auto& type = *request.GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    if (field.is_repeated()) continue;
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      if (IsAmong(field.name(), kParts) &&
          reflection.HasField(request, &field)) {
        AddNamed(reflection.GetMessage(request, &field), call);
      }
      continue;
    }
    if (field.cpp_type() != FieldDescriptor::CPPTYPE_STRING) continue;
    std::string value = reflection.GetString(request, &field);
    if (value.empty()) continue;
    if (field.name() == "job_id") {
      call.set_job_id(Cut(value, kNamedBytesMax));
    } else if (IsAmong(field.name(), kNames)) {
      const bool is_binary =
          absl::EndsWith(field.name(), "_id") || field.name() == "hash";
      absl::StrAppend(call.mutable_what(), call.what().empty() ? "" : " ",
                      field.name(), "=",
                      Cut(is_binary ? absl::BytesToHexString(value) : value,
                          kNamedBytesMax));
    }
  }
}

bool Matches(const v1::ListAuditRequest& request, const AuditRecord& call) {
  if (request.has_since() &&
      rpc::FromWire(call.at()) < rpc::FromWire(request.since())) {
    return false;
  }
  return request.principal().empty() ||
         call.principal() == request.principal() ||
         absl::EndsWith(call.principal(),
                        absl::StrCat("/", request.principal()));
}

}  // namespace

absl::StatusOr<v1::ListAuditResponse> ReadAudit(
    Store& store, const v1::ListAuditRequest& request) {
  v1::ListAuditResponse page;
  page.set_next(request.after());
  COHORT_ASSIGN_OR_RETURN(
      const StoredRows rows,
      store.LoadRange(Table::kAudit, RowKey(request.after() + 1), kRowsMax));
  page.set_more(rows.size() == kRowsMax);
  for (const auto& [key, value] : rows) {
    if (page.entries_size() == kEntriesMax) {
      page.set_more(true);
      break;
    }
    COHORT_ASSIGN_OR_RETURN(AuditRecord call, FromRow<AuditRecord>(key, value));
    page.set_next(call.number());
    if (Matches(request, call)) *page.add_entries() = std::move(call);
  }
  return page;
}

// Sees what a handler answers, on any thread.
class AuditService::Answer final : public rpc::ReplySink {
 public:
  Answer(std::shared_ptr<AuditService*> self, Executor& strand,
         std::shared_ptr<AuditBuffer> buffer, AuditRecord call, bool is_quiet,
         std::shared_ptr<rpc::ReplySink> sink)
      : self_(std::move(self)),
        strand_(strand),
        buffer_(std::move(buffer)),
        call_(std::move(call)),
        done_(is_quiet),
        sink_(std::move(sink)) {}

  // The row of its change; nothing when it has one, or is to have none.
  std::optional<AuditRecord> TakeRow() {
    if (done_.exchange(true)) return std::nullopt;
    return call_;
  }

  // ReplySink.
  void Send(const google::protobuf::MessageLite& response) override {
    if (std::optional<AuditRecord> row = TakeRow()) {
      // Nothing was changed, or not by the handler itself.
      strand_.Post([self = self_, row = *std::move(row)]() mutable {
        if (*self != nullptr) (*self)->Write(std::move(row));
      });
    }
    sink_->Send(response);
  }
  void SendError(const absl::Status& status) override {
    buffer_->Note(call_, status);
    sink_->SendError(status);
  }
  void Dropped() override { sink_->Dropped(); }

 private:
  const std::shared_ptr<AuditService*> self_;
  Executor& strand_;
  const std::shared_ptr<AuditBuffer> buffer_;
  const AuditRecord call_;
  std::atomic<bool> done_;
  // Shared: the call's.
  const std::shared_ptr<rpc::ReplySink> sink_;
};

AuditService::AuditService(StateHost& host, Read read,
                           std::shared_ptr<AuditBuffer> buffer,
                           Executor& strand)
    : host_(host),
      read_(std::move(read)),
      buffer_(std::move(buffer)),
      strand_(strand),
      self_(std::make_shared<AuditService*>(this)) {}

AuditService::~AuditService() { *self_ = nullptr; }

void AuditService::RegisterOn(rpc::Router& router) {
  if (buffer_ != nullptr) {
    router.SetAround([self = self_](const rpc::Router::Method& method,
                                    const Context& context,
                                    const Message& request,
                                    std::shared_ptr<rpc::ReplySink> sink) {
      if (*self == nullptr) {
        return method.handler(context, request, std::move(sink));
      }
      (*self)->Handle(method, context, request, std::move(sink));
    });
  }
  router.Handle(
      rpc::kListAudit, strand_,
      [self = self_](const Context&, const v1::ListAuditRequest& request,
                     rpc::Reply<v1::ListAuditResponse> reply) {
        if (*self == nullptr) return std::move(reply)(Gone());
        (*self)->read_(request,
                       [reply = std::move(reply)](
                           absl::StatusOr<v1::ListAuditResponse> page) mutable {
                         std::move(reply)(std::move(page));
                       });
      });
}

void AuditService::Handle(const rpc::Router::Method& method,
                          const Context& context, const Message& request,
                          std::shared_ptr<rpc::ReplySink> sink) {
  AuditRecord call =
      buffer_->CallOf(method.path, context->peer(), &context->principal());
  AddNamed(static_cast<const google::protobuf::Message&>(request), call);
  const bool is_quiet = IsOfProgram(context->principal(), call, request);
  const auto answer = std::make_shared<Answer>(
      self_, strand_, buffer_, std::move(call), is_quiet, std::move(sink));
  Answer* const outer = std::exchange(present_, answer.get());
  method.handler(context, request, answer);
  present_ = outer;
}

bool AuditService::IsOfProgram(const rpc::Principal& principal,
                               const AuditRecord& call,
                               const Message& request) {
  if (principal.role == rpc::Role::kRank) return true;
  if (call.method() == "ClusterService/SubmitJob") {
    return !static_cast<const v1::SubmitJobRequest&>(request)
                .spec()
                .actor()
                .driver_id()
                .empty();
  }
  const absl::StatusOr<const ClusterState*> state = host_.Readable();
  if (!state.ok() || call.job_id().empty()) return false;
  const JobRecord* const job =
      (*state)->jobs().Find(IdOf<JobId>(call.job_id()));
  return job != nullptr && !job->spec->actor().driver_id().empty();
}

void AuditService::AddTo(ClusterState& state, Transition& transition) {
  if (present_ == nullptr || transition.row_count() == 0) return;
  std::optional<AuditRecord> call = present_->TakeRow();
  if (!call.has_value()) return;
  // Only what a submit makes has a new spec.
  for (const ::cohort::head::Write& row : transition.batch()) {
    if (row.table == Table::kSpecs && row.value.has_value()) {
      call->set_job_id(row.key);
    }
  }
  state.Audit(*std::move(call), transition);
}

void AuditService::Flush(ClusterState& state, Transition& transition) {
  if (buffer_ == nullptr) return;
  for (AuditRecord& call : buffer_->Take()) {
    state.Audit(std::move(call), transition);
  }
}

void AuditService::Write(AuditRecord call) {
  const absl::StatusOr<ClusterState*> state = host_.Writable(Admission::kNode);
  // Until it can be written.
  if (!state.ok()) return buffer_->Note(std::move(call), absl::OkStatus());
  Transition transition;
  (*state)->Audit(std::move(call), transition);
  host_.Submit(std::move(transition));
}

}  // namespace cohort::head
