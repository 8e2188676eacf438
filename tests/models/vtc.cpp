// VTC on S-LoRA's engine from its rule (Sheng et al., OSDI 2024, Algorithm 2). Every token is charged when it is
// computed; counters, queues and the worst case of what runs are plain lists.
#include <map>
#include <memory>
#include <optional>

#include "tests/models/plain_policy.hpp"
#include "tests/models/plain_space.hpp"

namespace spillway::oracle {
namespace {

class PlainVtc final : public Scheduler {
 public:
  explicit PlainVtc(const Settings& settings) : settings_(settings) {}

  void arrived(const RequestView& request) override {
    const std::uint32_t client = request.client;
    if (!counters_.contains(client)) {
      counters_[client] = 0.0;
      seen_.push_back(client);
    }
    if (!waits(client)) lift(client);
    waiting_.push_back({request.id, client, request.input.count(), request.max_new_tokens.count()});
  }

  void iteration_ended() override {
    if (!decoding_) return;
    ++decode_steps_;
    for (Request& request : running_) ++request.generated;
    charge_step();
    finishing_ = true;
  }

  void ended(RequestId id, Outcome outcome) override {
    // The quirk of the code: a step in which a request finishes is charged twice, to all that took part in it.
    if (outcome == Outcome::finished && finishing_ && settings_.get<bool>("policy.double_charge")) {
      charge_step();
      finishing_ = false;
    }
    std::erase_if(running_, [&](const Request& request) { return request.id == id; });
    leave_queue(id);
  }

  void decide(const View& view, const KvSpace&, Decision& decision) override {
    decoding_ = finishing_ = false;
    const bool due = running_.empty() || decode_steps_ >= settings_.get<std::int64_t>("policy.decodes_between_prompts");
    if (due && build_mini_batch(view, decision)) {
      decode_steps_ = 0;
      return decision.decodes(0);
    }
    decoding_ = !running_.empty();
    decision.decodes(static_cast<std::int64_t>(running_.size()));
  }

 private:
  struct Request {
    RequestId id;
    std::uint32_t client = 0;
    std::int64_t input = 0;
    std::int64_t max_new = 0;
    std::int64_t generated = 0;
  };

  // --- who comes next
  [[nodiscard]] bool waits(std::uint32_t client) const {
    return std::any_of(waiting_.begin(), waiting_.end(), [&](const Request& r) { return r.client == client; });
  }
  /// The client with the smallest counter that has a request waiting; of equals, the one that was seen first.
  [[nodiscard]] std::optional<std::uint32_t> poorest() const {
    std::optional<std::uint32_t> best;
    for (const std::uint32_t client : seen_) {
      if (waits(client) && (!best || counters_.at(client) < counters_.at(*best))) best = client;
    }
    return best;
  }
  [[nodiscard]] const Request& next() const {
    if (settings_.get<std::string>("policy.order") == "fcfs") return waiting_.front();
    const std::uint32_t client = *poorest();
    return *std::find_if(waiting_.begin(), waiting_.end(), [&](const Request& r) { return r.client == client; });
  }
  void leave_queue(RequestId id) {
    const auto found = std::find_if(waiting_.begin(), waiting_.end(), [&](const Request& r) { return r.id == id; });
    if (found == waiting_.end()) return;
    const std::uint32_t client = found->client;
    waiting_.erase(found);
    if (!waits(client)) last_left_ = client;
  }

  // --- counters
  /// A client that comes back to an empty queue of its own starts level with the poorest that waits.
  void lift(std::uint32_t client) {
    std::optional<std::uint32_t> level = poorest();
    if (!level && settings_.get<std::string>("policy.lift") == "last-left") level = last_left_;
    if (level) counters_[client] = std::max(counters_[client], counters_[*level]);
  }
  /// h(p, q) of the profile.
  static double h(std::int64_t input, std::int64_t output) {
    const auto p = static_cast<double>(input);
    const auto q = static_cast<double>(output);
    return 0.21001891 * p + 0.10075395 * q + 0.0039868 * p * q + 0.00324733 * q * q + 1.14601454;
  }
  [[nodiscard]] bool profile() const { return settings_.get<std::string>("policy.cost") == "profile"; }
  /// Everyone who runs pays for the last token.
  void charge_step() {
    std::map<std::uint32_t, double> price;
    for (const Request& r : running_) {
      price[r.client] += profile() ? h(r.input, r.generated) - h(r.input, r.generated - 1) : 2.0;
    }
    for (const auto& [client, owed] : price) counters_[client] += owed;
  }

  // --- admission
  /// Tokens in the pool when it is fullest, if `fresh` joined: sorted by what is left to generate, the longest first,
  /// when the i-th request ends the first i hold what they have now, and i times what it has left.
  [[nodiscard]] std::int64_t fullest(const View& view, const Request& fresh) const {
    struct Entry {
      std::int64_t has = 0;
      std::int64_t left = 0;
    };
    // In blocks of more than a token each request may waste all but one token of its last.
    const std::int64_t wasted = view.block_tokens().count() - 1;
    std::vector<Entry> entries;
    for (const Request& r : running_) {
      // While a mini-batch is built its requests count with the first token still to come, as a fresh one does.
      const bool begun = r.generated > 0;
      entries.push_back({r.input + (begun ? r.generated : 1) + wasted, r.max_new - 1 - (begun ? r.generated : 0)});
    }
    entries.push_back({fresh.input + 1 + wasted, fresh.max_new - 1});
    std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.left > b.left; });
    std::int64_t most = 0;
    for (std::size_t i = 0; i < entries.size(); ++i) {
      std::int64_t tokens = entries[i].left * static_cast<std::int64_t>(i + 1);
      for (std::size_t j = 0; j <= i; ++j) tokens += entries[j].has;
      most = std::max(most, tokens);
    }
    return most;
  }
  bool build_mini_batch(const View& view, Decision& decision) {
    const std::int64_t pool = view.tier(kGpuTier).total.count() * view.block_tokens().count();
    const auto most_tokens = settings_.get<std::int64_t>("engine.max_num_batched_tokens");
    std::int64_t tokens = 0;
    while (!waiting_.empty()) {
      const Request request = next();
      const std::int64_t wasted = view.block_tokens().count() - 1;
      // It alone would fill the pool, or no mini-batch holds its prompt.
      if (request.input > most_tokens || request.input + request.max_new + wasted >= pool) {
        leave_queue(request.id);
        decision.reject(request.id);
        continue;
      }
      const auto seats = settings_.get<std::int64_t>("engine.max_num_seqs");
      std::optional<Blocked> why;
      if (fullest(view, request) >= pool) why = Blocked::kv_capacity;
      if (tokens + request.input > most_tokens) why = Blocked::token_budget;
      if (static_cast<std::int64_t>(running_.size()) >= seats) why = Blocked::batch_size;
      if (why) {
        decision.blocked(*why);
        break;
      }
      leave_queue(request.id);
      decision.join(request.id);
      decision.chunk(request.id, view.request(request.id).remaining());
      counters_[request.client] += profile() ? h(request.input, 0) : static_cast<double>(request.input);
      running_.push_back(request);
      tokens += request.input;
    }
    if (tokens == 0) return false;
    // The prompt's iteration gives the first token; it is not charged.
    for (Request& request : running_) request.generated = std::max<std::int64_t>(request.generated, 1);
    return true;
  }

  const Settings settings_;
  std::vector<Request> waiting_;  // of all clients, in order of arrival
  std::vector<Request> running_;
  std::map<std::uint32_t, double> counters_;
  std::vector<std::uint32_t> seen_;         // clients, in order of their first request
  std::optional<std::uint32_t> last_left_;  // the client whose queue became empty last
  std::int64_t decode_steps_ = 0;           // since the last mini-batch
  bool decoding_ = false;                   // the last iteration was a decode step
  bool finishing_ = false;                  // it has just ended, and no request has finished in it yet
};

/// Few steps between mini-batches, so that admission matters in a small case.
void vary(Dice& dice, Settings& settings) {
  if (dice.chance(70)) settings.set("policy.decodes_between_prompts", dice.between(0, 4));
  if (dice.chance(30)) settings.set("engine.max_num_seqs", dice.between(1, 3));
  if (dice.chance(60)) settings.set("policy.order", std::string("vtc"));
}

const RegisterPlain kRegistered{
    PlainPolicy{.name = "vtc",
                .make =
                    [](const PolicyContext& context) {
                      return Policy{std::make_unique<PlainVtc>(context.settings), std::make_unique<UnaskedSpace>()};
                    },
                .vary = vary,
                .explains_waiting = true}};

}  // namespace
}  // namespace spillway::oracle
