#include "trainer/comm/hierarchical_comm.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

#include "common/status_macros.h"
#include "common/status_util.h"
#include "trainer/comm/signature.h"

namespace cohort::trainer {
namespace {

constexpr absl::Duration kReserveMax = absl::Seconds(2);
constexpr std::chrono::milliseconds kWatchPeriod(50);
constexpr size_t kSmallBytesMax = 2048 - sizeof(Signature) - 8;

bool Reduces(const Comm::Call& call) {
  return call.kind == Comm::Kind::kAllReduce ||
         call.kind == Comm::Kind::kReduceScatter;
}

// Over with the verdict.
bool IsSmall(const Comm::Call& call) {
  return call.kind != Comm::Kind::kAllGather &&
         PackedBytes(call.buffers) <= kSmallBytesMax;
}

// Between nodes there are sums of shares of a mean.
ReduceOp BetweenNodes(ReduceOp op) {
  return op == ReduceOp::kAverage ? ReduceOp::kSum : op;
}

}  // namespace

// What ranks tell leaders, leaders each other, and then their ranks.
struct HierarchicalComm::Card {
  Signature signature;
  int32_t code = 0;  // of a verdict
  uint32_t text_bytes = 0;
  // The text of an error, or small buffers, packed.
  std::byte bytes[kSmallBytesMax];

  absl::Status verdict() const {
    return absl::Status(
        static_cast<absl::StatusCode>(code),
        absl::string_view(reinterpret_cast<const char*>(bytes), text_bytes));
  }
  void SetVerdict(const absl::Status& status) {
    code = static_cast<int32_t>(status.code());
    const absl::string_view text = status.message().substr(0, kSmallBytesMax);
    text_bytes = static_cast<uint32_t>(text.size());
    if (!status.ok()) std::memcpy(bytes, text.data(), text.size());
  }
  static Buffer Of(std::span<Card> cards) {
    return {cards.data(), cards.size_bytes() / sizeof(int64_t), DType::kI64};
  }
};

int HierarchicalComm::LanesOf(const NodeLayout& layout) {
  return std::min(layout.smallest(), kLanesMax);
}

absl::StatusOr<std::unique_ptr<HierarchicalComm>> HierarchicalComm::Create(
    const NodeLayout& layout, const Identity& identity,
    std::unique_ptr<ShmComm> local, std::unique_ptr<Comm> lane) {
  const size_t ranks = static_cast<size_t>(local->world());
  COHORT_ASSIGN_OR_RETURN(const std::span<std::byte> memory,
                          local->Allocate(ranks * sizeof(Card)));
  const std::span<Card> cards(reinterpret_cast<Card*>(memory.data()), ranks);
  return std::unique_ptr<HierarchicalComm>(new HierarchicalComm(
      layout, identity, std::move(local), std::move(lane), cards));
}

HierarchicalComm::HierarchicalComm(const NodeLayout& layout,
                                   const Identity& identity,
                                   std::unique_ptr<ShmComm> local,
                                   std::unique_ptr<Comm> lane,
                                   std::span<Card> cards)
    : Comm(identity),
      layout_(layout),
      node_(layout.NodeOf(identity.rank)),
      lanes_(LanesOf(layout)),
      local_(std::move(local)),
      lane_(std::move(lane)),
      cards_(cards) {
  static_assert(sizeof(Card) == 2048);
  if (is_leader()) node_cards_.resize(layout_.nodes());
  if (lane_ != nullptr) watch_ = std::thread([this] { WatchNode(); });
}

HierarchicalComm::~HierarchicalComm() {
  if (!watch_.joinable()) return;
  {
    MutexLock lock(mutex_);
    is_over_ = true;
    changed_.SignalAll();
  }
  watch_.join();
}

void HierarchicalComm::WatchNode() {
  MutexLock lock(mutex_);
  while (!is_over_ && !local_->is_revoked()) {
    changed_.WaitFor(mutex_, absl::FromChrono(kWatchPeriod));
  }
  if (local_->is_revoked()) lane_->Revoke();
}

absl::Status HierarchicalComm::CheckPeers() const {
  COHORT_RETURN_IF_ERROR(local_->CheckPeers());
  return lane_ == nullptr ? absl::OkStatus() : lane_->CheckPeers();
}

void HierarchicalComm::Revoke() {
  local_->Revoke();
  if (lane_ != nullptr) lane_->Revoke();
}

absl::Status HierarchicalComm::Run(const Call& call) {
  const absl::Duration deadline =
      std::min(call.deadline, absl::Hours(24 * 365 * 10));
  until_ =
      std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(deadline);
  reserve_ = std::min(deadline / 4, kReserveMax);
  const absl::Status agreed = Agree(call);
  if (absl::IsAborted(agreed)) Revoke();
  if (!agreed.ok() || IsSmall(call)) return agreed;
  const absl::Status moved = Move(call);
  if (moved.ok()) return moved;
  // The others already rely on this rank.
  Revoke();
  return absl::IsDeadlineExceeded(moved) ? moved
                                         : absl::AbortedError(moved.message());
}

int HierarchicalComm::RankOf(int local_rank) const {
  return layout_.FirstOf(node_) + local_rank;
}

absl::Duration HierarchicalComm::Left(Step step) const {
  const int behind = static_cast<int>(Step::kLast) - static_cast<int>(step);
  return absl::FromChrono(until_ - std::chrono::steady_clock::now()) -
         behind * reserve_;
}

absl::Status HierarchicalComm::OnNode(const Call& call, Call part, Step step) {
  part.deadline = Left(step);
  const absl::Status done = RunOn(*local_, part);
  if (!absl::IsDeadlineExceeded(done)) {
    return Annotate(done, absl::StrCat("on the node of ranks ", RankOf(0),
                                       " to ", RankOf(local_->world() - 1)));
  }
  std::vector<int> missing;
  for (const int peer : MissingOf(*local_)) missing.push_back(RankOf(peer));
  return NotArrived(call, std::move(missing));
}

absl::Status HierarchicalComm::OnLane(const Call& call, Call part, Step step) {
  part.deadline = Left(step);
  const absl::Status done = RunOn(*lane_, part);
  if (!absl::IsDeadlineExceeded(done)) {
    return Annotate(done, "between nodes");
  }
  std::vector<int> missing;
  for (const int node : MissingOf(*lane_)) {
    missing.push_back(layout_.FirstOf(node) + local_->rank());
  }
  return NotArrived(call, std::move(missing));
}

// ---- the verdict

absl::Status HierarchicalComm::Agree(const Call& call) {
  Card& mine = cards_[local_->rank()];
  mine.signature = Sign(call, epoch());
  const absl::Status reserved = ReserveFor(call);
  mine.signature.has_failed = reserved.ok() ? 0 : 1;
  const bool brings = call.kind != Kind::kBroadcast || call.root == rank();
  if (IsSmall(call) && brings) Pack(call.buffers, mine.bytes);
  const Buffer all = Card::Of(cards_);
  const absl::Status met =
      OnNode(call, {.kind = Kind::kAllGather, .buffers = std::span(&all, 1)},
             Step::kInNode);
  Card verdict = {};
  // A leader tells the other nodes for whom this one waits.
  if (is_leader() && !absl::IsAborted(met)) Judge(call, met, verdict);
  COHORT_RETURN_IF_ERROR(met);
  if (absl::Status judged = verdict.verdict(); absl::IsAborted(judged)) {
    return judged;
  }
  const Buffer told = Card::Of(std::span(&verdict, 1));
  COHORT_RETURN_IF_ERROR(
      OnNode(call, {.kind = Kind::kBroadcast, .buffers = std::span(&told, 1)},
             Step::kLast));
  if (!reserved.ok() && absl::IsResourceExhausted(verdict.verdict())) {
    return reserved;
  }
  COHORT_RETURN_IF_ERROR(verdict.verdict());
  if (IsSmall(call)) Unpack(verdict.bytes, call.buffers);
  return absl::OkStatus();
}

absl::Status HierarchicalComm::ReserveFor(const Call& call) {
  if (IsSmall(call)) return absl::OkStatus();
  if (Reduces(call) || call.kind == Kind::kBroadcast) {
    return ReserveOn(*local_,
                     {.kind = Kind::kReduceScatter, .buffers = call.buffers});
  }
  const std::vector<Buffer> ours = BlocksOf(call.buffers, node_);
  const std::vector<Buffer> others = BlocksOfOthers(call.buffers);
  COHORT_RETURN_IF_ERROR(
      ReserveOn(*local_, {.kind = Kind::kAllGather, .buffers = ours}));
  return ReserveOn(*local_, {.kind = Kind::kAllGather, .buffers = others});
}

void HierarchicalComm::Judge(const Call& call, const absl::Status& met,
                             Card& verdict) {
  Card& node = node_cards_[node_];
  node.signature = cards_[0].signature;
  node.SetVerdict(met.ok() ? JudgeNode(call, node) : met);
  const Buffer all = Card::Of(node_cards_);
  absl::Status judged =
      OnLane(call, {.kind = Kind::kAllGather, .buffers = std::span(&all, 1)},
             Step::kBetweenNodes);
  if (judged.ok()) judged = JudgeNodes(call, verdict);
  verdict.SetVerdict(judged);
}

absl::Status HierarchicalComm::Compare(int peer,
                                       const Signature& theirs) const {
  const absl::Status alike = CheckAlike(cards_[0].signature, peer, theirs);
  if (alike.ok()) return alike;
  // Other ranks read it, too.
  return absl::InvalidArgumentError(absl::StrReplaceAll(
      alike.message(), {{"this rank", absl::StrCat("rank ", rank())}}));
}

absl::Status HierarchicalComm::JudgeNode(const Call& call, Card& node) {
  std::vector<const std::byte*> packs;
  for (size_t i = 0; i < cards_.size(); ++i) {
    COHORT_RETURN_IF_ERROR(
        Compare(RankOf(static_cast<int>(i)), cards_[i].signature));
    packs.push_back(cards_[i].bytes);
  }
  for (size_t i = 0; i < cards_.size(); ++i) {
    if (cards_[i].signature.has_failed == 0) continue;
    return absl::ResourceExhaustedError(
        absl::StrCat("rank ", RankOf(static_cast<int>(i)),
                     " has no shared memory to stage its buffers; use buffers "
                     "from Allocate, or more room"));
  }
  if (!IsSmall(call)) return absl::OkStatus();
  if (Reduces(call)) {
    Call share = call;
    share.mean_of = world();
    ReducePacked(share, packs, node.bytes);
  } else if (layout_.NodeOf(call.root) == node_) {
    std::memcpy(node.bytes, packs[call.root - RankOf(0)], kSmallBytesMax);
  }
  return absl::OkStatus();
}

absl::Status HierarchicalComm::JudgeNodes(const Call& call, Card& verdict) {
  std::vector<const std::byte*> packs;
  for (const Card& card : node_cards_) {
    COHORT_RETURN_IF_ERROR(card.verdict());
    packs.push_back(card.bytes);
  }
  for (int node = 0; node < layout_.nodes(); ++node) {
    COHORT_RETURN_IF_ERROR(
        Compare(layout_.FirstOf(node), node_cards_[node].signature));
  }
  if (!IsSmall(call)) return absl::OkStatus();
  if (Reduces(call)) {
    Call sum = call;
    sum.op = BetweenNodes(call.op);
    ReducePacked(sum, packs, verdict.bytes);
  } else {
    std::memcpy(verdict.bytes, packs[layout_.NodeOf(call.root)],
                kSmallBytesMax);
  }
  return absl::OkStatus();
}

// ---- large buffers

absl::Status HierarchicalComm::Move(const Call& call) {
  if (Reduces(call)) return MoveReduction(call);
  return call.kind == Kind::kBroadcast ? MoveBroadcast(call) : MoveGather(call);
}

std::vector<Buffer> HierarchicalComm::LaneParts(
    std::span<const Buffer> buffers) const {
  std::vector<Buffer> parts;
  for (const Buffer& buffer : buffers) {
    const Range range = OwnRange(buffer, local_->rank(), lanes_);
    if (!range.empty()) parts.push_back(PartOf(buffer, range));
  }
  return parts;
}

absl::Status HierarchicalComm::MoveReduction(const Call& call) {
  COHORT_RETURN_IF_ERROR(OnNode(call,
                                {.kind = Kind::kReduceScatter,
                                 .buffers = call.buffers,
                                 .op = call.op,
                                 .parts = lanes_,
                                 .mean_of = world()},
                                Step::kInNode));
  // Alike in all nodes, as the lanes are.
  const std::vector<Buffer> parts = LaneParts(call.buffers);
  if (!parts.empty()) {
    COHORT_RETURN_IF_ERROR(OnLane(call,
                                  {.kind = Kind::kAllReduce,
                                   .buffers = parts,
                                   .op = BetweenNodes(call.op)},
                                  Step::kBetweenNodes));
  }
  return OnNode(
      call,
      {.kind = Kind::kAllGather, .buffers = call.buffers, .parts = lanes_},
      Step::kLast);
}

absl::Status HierarchicalComm::MoveBroadcast(const Call& call) {
  const int root_node = layout_.NodeOf(call.root);
  if (node_ == root_node) {
    COHORT_RETURN_IF_ERROR(OnNode(call,
                                  {.kind = Kind::kBroadcast,
                                   .buffers = call.buffers,
                                   .root = call.root - RankOf(0)},
                                  Step::kInNode));
  }
  const std::vector<Buffer> parts = LaneParts(call.buffers);
  if (!parts.empty()) {
    COHORT_RETURN_IF_ERROR(OnLane(
        call, {.kind = Kind::kBroadcast, .buffers = parts, .root = root_node},
        Step::kBetweenNodes));
  }
  if (node_ == root_node) return absl::OkStatus();
  return OnNode(
      call,
      {.kind = Kind::kAllGather, .buffers = call.buffers, .parts = lanes_},
      Step::kLast);
}

std::vector<Buffer> HierarchicalComm::BlocksOf(std::span<const Buffer> buffers,
                                               int node) const {
  std::vector<Buffer> blocks;
  const auto world_size = static_cast<size_t>(world());
  for (const Buffer& buffer : buffers) {
    const size_t block = buffer.count / world_size;
    if (block == 0) continue;
    const size_t begin = block * static_cast<size_t>(layout_.FirstOf(node));
    const size_t count = block * static_cast<size_t>(layout_.SizeOf(node));
    blocks.push_back(PartOf(buffer, {begin, begin + count}));
  }
  return blocks;
}

std::vector<Buffer> HierarchicalComm::BlocksOfOthers(
    std::span<const Buffer> buffers) const {
  std::vector<Buffer> blocks;
  for (int node = 0; node < layout_.nodes(); ++node) {
    if (node == node_) continue;
    for (const Buffer& block : BlocksOf(buffers, node)) {
      blocks.push_back(block);
    }
  }
  return blocks;
}

absl::Status HierarchicalComm::MoveGather(const Call& call) {
  const std::vector<Buffer> ours = BlocksOf(call.buffers, node_);
  COHORT_RETURN_IF_ERROR(
      OnNode(call, {.kind = Kind::kAllGather, .buffers = ours}, Step::kInNode));
  for (int node = 0; node < layout_.nodes(); ++node) {
    const std::vector<Buffer> parts = LaneParts(BlocksOf(call.buffers, node));
    if (parts.empty()) continue;
    COHORT_RETURN_IF_ERROR(
        OnLane(call, {.kind = Kind::kBroadcast, .buffers = parts, .root = node},
               Step::kBetweenNodes));
  }
  const std::vector<Buffer> others = BlocksOfOthers(call.buffers);
  return OnNode(call,
                {.kind = Kind::kAllGather, .buffers = others, .parts = lanes_},
                Step::kLast);
}

}  // namespace cohort::trainer
