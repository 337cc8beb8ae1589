// Who is let in, by which role (docs/security.md).

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "common/check.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "head/testing/head_core_fixture.h"
#include "rpc/certificate.h"
#include "rpc/role.h"

namespace cohort::head {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class HeadCoreTokensTest : public HeadCoreTest {
 protected:
  absl::StatusOr<v1::CreateTokenResponse> Create(
      v1::Role role, const std::string& name,
      absl::Duration ttl = absl::ZeroDuration(),
      const std::vector<std::string>& namespaces = {}) {
    v1::CreateTokenRequest request;
    request.set_token_id(random_.Bytes(rpc::Credential::kTokenIdBytes));
    request.set_role(role);
    request.set_name(name);
    request.set_ttl_us(absl::ToInt64Microseconds(ttl));
    *request.mutable_namespaces() = {namespaces.begin(), namespaces.end()};
    return Call(rpc::kCreateToken, request);
  }

  rpc::Credential TokenOf(v1::Role role, absl::Duration ttl = {}) {
    const auto made =
        Create(role, absl::StrCat("user-", static_cast<int>(role)), ttl);
    COHORT_CHECK(made.ok()) << made.status();
    return *rpc::Credential::FromBytes(made->secret());
  }

  absl::StatusOr<v1::JoinResponse> Join(const rpc::Credential& as,
                                        const NodeId& node,
                                        const std::string& nonce) {
    v1::JoinRequest request;
    request.set_node_id(std::string(node.bytes()));
    request.set_name("w");
    request.set_nonce(nonce);
    return Call(rpc::kJoin, request, absl::Seconds(5), as);
  }

  absl::Status Revoke(const rpc::Credential& token) {
    v1::RevokeTokenRequest request;
    request.set_token_id(std::string(token.TokenId()));
    return Call(rpc::kRevokeToken, request).status();
  }

  absl::Status Ask(std::optional<rpc::Credential> as) {
    return Call(rpc::kGetStatus, v1::GetStatusRequest(), absl::Seconds(5),
                std::move(as))
        .status();
  }

  rpc::Credential WorkerOf(const NodeId& node) {
    const auto joined = Join(TokenOf(v1::ROLE_JOIN), node, "some nonce");
    COHORT_CHECK(joined.ok()) << joined.status();
    return *rpc::Credential::FromBytes(joined->secret());
  }

  // What that method answers to a request about `job`.
  template <typename Req, typename Resp>
  absl::Status About(const rpc::UnaryMethod<Req, Resp>& method,
                     const std::string& job, const rpc::Credential& as) {
    Req request;
    request.set_job_id(job);
    return Call(method, request, absl::Seconds(1), as).status();
  }

  absl::StatusOr<std::string> SubmitIn(const std::string& name_space,
                                       const rpc::Credential& as) {
    v1::SubmitJobRequest request = Submission("job", 1);
    request.mutable_spec()->set_namespace_(name_space);
    COHORT_ASSIGN_OR_RETURN(
        const v1::SubmitJobResponse response,
        Call(rpc::kSubmitJob, request, absl::Seconds(5), as));
    return response.job_id();
  }

  void Restart() {
    Crash();
    Run();
    Start();
  }

  // What `path` answers to an empty request within a second; nothing: it waits.
  std::optional<absl::Status> Try(const std::string& path, bool is_stream,
                                  const rpc::Credential& as) {
    std::optional<absl::Status> answer;
    const auto channel = network_.Connect("client", kHead, as);
    if (!is_stream) {
      channel->StartUnary(
          path, "", {.deadline = absl::Seconds(1)}, time_,
          [&](rpc::CallResult result) { answer = result.response.status(); });
      Run(absl::Seconds(3));
      return answer;
    }
    const auto stream = channel->OpenStream(
        path, {.deadline = absl::Seconds(1)}, time_,
        {.on_message = [](absl::string_view) { return absl::OkStatus(); },
         .on_closed = [&](absl::Status status,
                          auto) { answer = std::move(status); },
         .on_drained = nullptr});
    stream->HalfClose();
    Run(absl::Seconds(3));
    return answer;
  }
};

// RT-3: every method that the head serves, with every role and with none.
TEST_F(HeadCoreTokensTest, EveryMethodAnswersItsRolesOnly) {
  const ProcessId process = {AttemptId::New(random_), 0, 1};
  const std::pair<rpc::Role, rpc::Credential> callers[] = {
      {rpc::Role::kAdmin, TokenOf(v1::ROLE_ADMIN)},
      {rpc::Role::kSubmit, TokenOf(v1::ROLE_SUBMIT)},
      {rpc::Role::kRead, TokenOf(v1::ROLE_READ)},
      {rpc::Role::kWorker, WorkerOf(node_)},
      {rpc::Role::kRank, rpc::MintRankCredential(credential_, process)},
      {rpc::Role::kJoin, TokenOf(v1::ROLE_JOIN)}};
  const std::vector<std::string> unary_paths = router_->UnaryPaths();
  const std::set<std::string> unary(unary_paths.begin(), unary_paths.end());
  const rpc::Credential nobody =
      *rpc::Credential::FromBytes(std::string(32, 'x'));
  ASSERT_GT(router_->Methods().size(), 30u);
  for (const auto& [path, roles] : router_->Methods()) {
    const bool is_stream = !unary.contains(path);
    for (const auto& [role, credential] : callers) {
      SCOPED_TRACE(absl::StrCat(path, " by ", rpc::RoleName(role)));
      const std::optional<absl::Status> answer =
          Try(path, is_stream, credential);
      EXPECT_EQ(answer.has_value() && GetReason(*answer) == "role",
                !roles.Has(role))
          << answer.value_or(absl::OkStatus());
    }
    EXPECT_THAT(Try(path, is_stream, nobody).value_or(absl::OkStatus()),
                StatusIs(absl::StatusCode::kUnauthenticated))
        << path;
  }
}

// TB-1.
TEST_F(HeadCoreTokensTest, ATokenIsGoodUntilItExpiresOrIsRevoked) {
  const rpc::Credential token = TokenOf(v1::ROLE_READ, absl::Hours(1));
  const rpc::Credential lasting = TokenOf(v1::ROLE_SUBMIT);
  COHORT_EXPECT_OK(Ask(token));
  COHORT_EXPECT_OK(Ask(lasting));
  Restart();
  COHORT_EXPECT_OK(Ask(token));
  Run(absl::Minutes(61));
  EXPECT_THAT(Ask(token), StatusIs(absl::StatusCode::kUnauthenticated,
                                   HasSubstr("the head's clock says")));
  EXPECT_EQ(GetReason(Ask(token)), "expired_token");
  COHORT_EXPECT_OK(Ask(lasting));
  COHORT_EXPECT_OK(Revoke(lasting));
  COHORT_EXPECT_OK(Revoke(lasting));
  EXPECT_EQ(GetReason(Ask(lasting)), "revoked_token");
  Restart();
  EXPECT_EQ(GetReason(Ask(lasting)), "revoked_token");
}

TEST_F(HeadCoreTokensTest, ATokenOfAnotherClusterOrSwappedIsNotLetIn) {
  const rpc::Credential token = TokenOf(v1::ROLE_READ);
  const rpc::Credential other = rpc::Credential::OfToken(
      *rpc::Credential::FromBytes(std::string(32, 'o')), token.TokenId());
  EXPECT_THAT(Ask(other), StatusIs(absl::StatusCode::kUnauthenticated));
  // With a good secret, and forgotten.
  const rpc::Credential unknown =
      rpc::Credential::OfToken(credential_, std::string(8, 'u'));
  EXPECT_EQ(GetReason(Ask(unknown)), "unknown_token");
  std::string swapped = token.bytes();
  std::swap(swapped[0], swapped[1]);
  EXPECT_FALSE(Ask(*rpc::Credential::FromBytes(swapped)).ok());
  EXPECT_EQ(GetReason(Create(v1::ROLE_READ, "user-3").status()),
            "token_exists");
  for (const v1::Role role :
       {v1::ROLE_UNSPECIFIED, v1::ROLE_WORKER, v1::ROLE_RANK}) {
    EXPECT_THAT(Create(role, "x"),
                StatusIs(absl::StatusCode::kInvalidArgument));
  }
  EXPECT_THAT(Create(v1::ROLE_READ, " "),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(HeadCoreTokensTest, AUserHasTheNamespacesThatAreGranted) {
  const rpc::Credential ann = *rpc::Credential::FromBytes(
      Create(v1::ROLE_SUBMIT, "ann", {}, {"ml", "web"})->secret());
  const std::string others = *SubmitIn("default", credential_);
  const std::string own = *SubmitIn("ml", ann);
  EXPECT_THAT(SubmitIn("default", ann),
              StatusIs(absl::StatusCode::kPermissionDenied,
                       HasSubstr("user/ann may use the namespace ml, web only, "
                                 "not default")));
  const auto is_refused = [](const absl::Status& status) {
    return absl::IsPermissionDenied(status) &&
           absl::StrContains(status.message(), "not default");
  };
  const auto refused = [&](const std::string& job) {
    return std::vector<bool>{is_refused(About(rpc::kGetJob, job, ann)),
                             is_refused(About(rpc::kExplainJob, job, ann)),
                             is_refused(About(rpc::kWaitJob, job, ann)),
                             is_refused(About(rpc::kGetStack, job, ann)),
                             is_refused(About(rpc::kGetServedCalls, job, ann)),
                             is_refused(About(rpc::kHoldJob, job, ann)),
                             is_refused(About(rpc::kReleaseJob, job, ann)),
                             is_refused(About(rpc::kResizeJob, job, ann)),
                             is_refused(About(rpc::kStopJob, job, ann)),
                             is_refused(About(rpc::kRemoveJob, job, ann))};
  };
  EXPECT_THAT(refused(others), Each(true));
  EXPECT_THAT(refused(own), Each(false));

  const auto listed =
      Call(rpc::kListJobs, v1::ListJobsRequest(), absl::Seconds(5), ann);
  ASSERT_EQ(listed->jobs_size(), 1);
  EXPECT_EQ(listed->jobs(0).namespace_(), "ml");
  const auto events =
      Call(rpc::kListEvents, v1::ListEventsRequest(), absl::Seconds(5), ann);
  EXPECT_GT(events->events_size(), 0);
  for (const v1::Event& event : events->events()) {
    EXPECT_NE(event.job_id(), others);
  }
  EXPECT_EQ(Get(others).submitted_by(), "cluster");

  EXPECT_THAT(Create(v1::ROLE_ADMIN, "bob", {}, {"ml"}),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Create(v1::ROLE_READ, "bob", {}, {"a\nb"}),
              StatusIs(absl::StatusCode::kInvalidArgument));
  Restart();
  EXPECT_TRUE(is_refused(About(rpc::kGetJob, others, ann)));
}

TEST_F(HeadCoreTokensTest, ANodeJoinsOnce) {
  const rpc::Credential token = TokenOf(v1::ROLE_JOIN);
  const auto first = Join(token, node_, "nonce one");
  COHORT_ASSERT_OK(first);
  // Its answer was lost.
  EXPECT_EQ(Join(token, node_, "nonce one")->secret(), first->secret());
  // Who has its id, and not its credential.
  EXPECT_THAT(Join(token, node_, "nonce two"),
              StatusIs(absl::StatusCode::kAlreadyExists,
                       HasSubstr("cohort token revoke")));
  COHORT_EXPECT_OK(Revoke(*rpc::Credential::FromBytes(first->secret())));
  const auto second = Join(token, node_, "nonce two");
  COHORT_ASSERT_OK(second);
  EXPECT_NE(second->secret(), first->secret());
  EXPECT_THAT(
      Join(WorkerOf(NodeId::New(random_)), NodeId::New(random_), "nonce three"),
      StatusIs(absl::StatusCode::kPermissionDenied));
}

TEST_F(HeadCoreTokensTest, AWorkerSpeaksForItsOwnNode) {
  const rpc::Credential worker = WorkerOf(node_);
  const auto stranger =
      Open(Registration(NodeId::New(random_)), "stranger", worker);
  EXPECT_THAT(
      stranger->closed.value_or(absl::OkStatus()),
      StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr(node_.ToHex())));
  const auto own = Open(Registration(node_), "worker", worker);
  EXPECT_EQ(own->closed, std::nullopt);
  v1::DrainNodeRequest drain;
  drain.set_request_id("d");
  drain.set_node(NodeId::New(random_).ToHex());
  EXPECT_THAT(Call(rpc::kDrainNode, drain, absl::Seconds(5), worker),
              StatusIs(absl::StatusCode::kPermissionDenied));
  COHORT_EXPECT_OK(Revoke(worker));
  Run();
  EXPECT_EQ(GetReason(own->closed.value_or(absl::OkStatus())), "revoked_token");
}

// PR-3 between nodes: another worker's word for a process is worth nothing.
TEST_F(HeadCoreTokensTest, ARankIsMadeByTheWorkerThatRunsIt) {
  const auto job = Submit("r");
  auto worker = Open(Registration(node_));
  const v1::DesiredPlace desired = RunJob(*worker);
  const ProcessId process = {*AttemptId::FromBytes(desired.attempt_id()),
                             desired.processes(0).slot(),
                             desired.processes(0).incarnation()};
  v1::GetJobRequest request;
  request.set_job_id(*job);
  const auto ask = [&](const rpc::Credential& holder) {
    return Call(rpc::kGetJob, request, absl::Seconds(5),
                rpc::MintRankCredential(holder, process))
        .status();
  };
  const rpc::Credential own = WorkerOf(node_);
  COHORT_EXPECT_OK(ask(own));
  EXPECT_THAT(ask(WorkerOf(NodeId::New(random_))),
              StatusIs(absl::StatusCode::kPermissionDenied));
  EXPECT_THAT(ask(TokenOf(v1::ROLE_ADMIN)),
              StatusIs(absl::StatusCode::kUnauthenticated));
  COHORT_EXPECT_OK(Revoke(own));
  EXPECT_EQ(GetReason(ask(own)), "revoked_token");
}

TEST_F(HeadCoreTokensTest, RequestsForRoomAreTheirOwnersOwn) {
  const auto user = [&](const std::string& name) {
    return *rpc::Credential::FromBytes(Create(v1::ROLE_SUBMIT, name)->secret());
  };
  const rpc::Credential ann = user("ann"), bob = user("bob");
  const auto ask_for = [&](uint32_t count, const rpc::Credential& as) {
    v1::RequestCapacityRequest request;
    request.mutable_request()->set_name("mine");
    request.mutable_request()->set_owner("user/eve");  // is not believed
    auto& bundle = *request.mutable_request()->add_bundles();
    *bundle.mutable_resources() = rpc::ToWire(*ParseResources("CPU=1"));
    bundle.set_count(count);
    return Call(rpc::kRequestCapacity, request, absl::Seconds(5), as);
  };
  const auto withdraw = [&](const std::string& owner,
                            const rpc::Credential& as) {
    v1::WithdrawCapacityRequest request;
    request.set_name("mine");
    request.set_owner(owner);
    return Call(rpc::kWithdrawCapacity, request, absl::Seconds(5), as).status();
  };
  const auto shown = [&] {
    const auto answer = Call(rpc::kGetAutoscaler, v1::GetAutoscalerRequest());
    std::vector<std::string> all;
    for (const v1::CapacityRequest& each : answer->requests()) {
      all.push_back(absl::StrCat(each.owner(), ":", each.bundles(0).count()));
    }
    return all;
  };
  COHORT_ASSERT_OK(ask_for(1, ann));
  COHORT_ASSERT_OK(ask_for(2, bob));
  COHORT_ASSERT_OK(ask_for(3, ann));
  EXPECT_THAT(shown(), ElementsAre("user/ann:3", "user/bob:2"));
  EXPECT_EQ(GetReason(withdraw("user/bob", ann)), "another_owner");
  EXPECT_THAT(withdraw("", credential_), StatusIs(absl::StatusCode::kNotFound));
  COHORT_EXPECT_OK(withdraw("", ann));
  EXPECT_THAT(shown(), ElementsAre("user/bob:2"));
  Crash();
  Start();
  EXPECT_THAT(shown(), ElementsAre("user/bob:2"));
  COHORT_EXPECT_OK(withdraw("user/bob", credential_));
  EXPECT_THAT(shown(), IsEmpty());
}

// RT-9.
TEST_F(HeadCoreTokensTest, WhatLastsEndsWithItsToken) {
  const rpc::Credential own = WorkerOf(node_);
  const auto worker = Open(Registration(node_), "worker", own);
  ASSERT_FALSE(worker->closed.has_value());
  const rpc::Credential ann = TokenOf(v1::ROLE_SUBMIT, absl::Seconds(5));
  const auto channel = network_.Connect("ann", kHead, ann);
  std::optional<absl::Status> driver, waits;
  auto stream = rpc::OpenStream<v1::DriverMessage, v1::DriverUpdate>(
      *channel, rpc::kDrive, {.deadline = absl::InfiniteDuration()}, time_,
      {.on_message = [](const v1::DriverUpdate&) {},
       .on_closed = [&](absl::Status why, auto) { driver = std::move(why); },
       .on_drained = nullptr});
  v1::ListEventsRequest events;
  events.set_kind("node_dead");  // there are none
  events.set_wait(true);
  rpc::Call<v1::ListEventsRequest, v1::ListEventsResponse>(
      *channel, rpc::kListEvents, events, {.deadline = absl::Minutes(3)}, time_,
      [&](const auto& answer) { waits = answer.status(); });
  Run();
  EXPECT_FALSE(driver.has_value());
  EXPECT_FALSE(waits.has_value());
  Run(absl::Seconds(6));
  ASSERT_TRUE(driver.has_value());
  EXPECT_EQ(GetReason(*driver), "expired_token");
  ASSERT_TRUE(waits.has_value());
  EXPECT_EQ(GetReason(*waits), "expired_token");
  ASSERT_FALSE(worker->closed.has_value());
  COHORT_EXPECT_OK(Revoke(own));
  Run();
  ASSERT_TRUE(worker->closed.has_value());
  EXPECT_EQ(GetReason(*worker->closed), "revoked_token");
}

TEST_F(HeadCoreTokensTest, AnOlderStoreBringsNobodyBack) {
  class Kept final : public Revocations {
   public:
    const std::vector<std::string>& ids() const override { return ids_; }
    absl::Status Add(const std::string& id) override {
      ids_.push_back(id);
      return absl::OkStatus();
    }

   private:
    std::vector<std::string> ids_;
  } kept;
  Crash();
  revocations_ = &kept;
  Start();
  const rpc::Credential ann = TokenOf(v1::ROLE_SUBMIT);
  const Batch before = CopyStore();
  COHORT_EXPECT_OK(Revoke(ann));
  EXPECT_EQ(kept.ids().size(), 1u);
  Crash();
  PutBack(before);
  Start();
  Run();
  EXPECT_EQ(GetReason(Ask(ann)), "revoked_token");
}

// RA-2.
TEST_F(HeadCoreTokensTest, ARotationWaitsForItsNodes) {
  class Made final : public Authorities {
   public:
    Held held() const override { return held_; }
    absl::Status BeginRotation() override {
      if (held_.next.empty()) held_.next = rpc::NewAuthority().certificate;
      return absl::OkStatus();
    }
    absl::Status FinishRotation() override {
      held_ = {.current = held_.next, .next = ""};
      return absl::OkStatus();
    }

   private:
    Held held_ = {.current = rpc::NewAuthority().certificate, .next = ""};
  } made;
  const auto list = [&] {
    return *Call(rpc::kListAuthorities, v1::ListAuthoritiesRequest());
  };
  EXPECT_THAT(
      Call(rpc::kRotateAuthority, v1::RotateAuthorityRequest()).status(),
      StatusIs(absl::StatusCode::kUnimplemented));
  Crash();
  authorities_ = &made;
  Start();
  const auto worker = Open(Registration(node_));
  const auto announced = [&] { return worker->messages.back().authority(); };
  EXPECT_EQ(announced(), "");
  v1::FinishRotationRequest finish;
  finish.set_fingerprint(std::string(64, 'a'));
  EXPECT_EQ(GetReason(Call(rpc::kFinishRotation, finish).status()),
            "no_rotation");
  COHORT_ASSERT_OK(Call(rpc::kRotateAuthority, v1::RotateAuthorityRequest()));
  EXPECT_EQ(announced(), made.held().next);
  COHORT_ASSERT_OK(Call(rpc::kRotateAuthority, v1::RotateAuthorityRequest()));
  const v1::Authorities both = list();
  ASSERT_EQ(both.authorities_size(), 2);
  EXPECT_THAT(both.nodes_without(), ElementsAre("node"));
  finish.set_fingerprint(both.authorities(1).fingerprint());
  const absl::Status waits = Call(rpc::kFinishRotation, finish).status();
  EXPECT_EQ(GetReason(waits), "nodes_without_authority");
  EXPECT_THAT(waits.message(), HasSubstr("1 nodes"));
  // Another life of the head says it to whoever comes.
  Crash();
  Start();
  v1::WorkerMessage late = Registration(NodeId::New(random_));
  late.mutable_register_()->set_name("late");
  const auto other = Open(late, "late");
  EXPECT_EQ(other->messages.front().authority(), made.held().next);
  v1::WorkerMessage has = Registration(node_);
  has.mutable_register_()->set_authority(finish.fingerprint());
  const auto back = Open(has);
  EXPECT_THAT(list().nodes_without(), ElementsAre("late"));
  v1::WorkerMessage beat;
  beat.set_incarnation(other->incarnation);
  beat.mutable_heartbeat()->set_authority(finish.fingerprint());
  COHORT_EXPECT_OK(other->stream->Write(beat));
  Run();
  EXPECT_THAT(list().nodes_without(), IsEmpty());
  COHORT_EXPECT_OK(Call(rpc::kFinishRotation, finish));
  COHORT_EXPECT_OK(Call(rpc::kFinishRotation, finish));  // as tried again
  EXPECT_EQ(list().authorities_size(), 1);
}

}  // namespace
}  // namespace cohort::head
