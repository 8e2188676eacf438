// What a scheduler decided, as text, and why it left the head of its queue waiting.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "sim/api/registry.hpp"

namespace spillway::oracle {

struct DecisionLog {
  std::vector<std::vector<std::string>> steps;  // of each decision, its time first, when `verbose`
  std::map<SimTime, Blocked> waiting;           // the last reason given in the last decision at a time
  bool verbose = false;
};

/// Hands every step on to the engine's decision and notes it. Requests are named by their place in the workload.
class LoggedDecision final : public Decision {
 public:
  LoggedDecision(Decision& decision, const View& view, DecisionLog& log)
      : decision_(decision), log_(log), now_(view.now()) {
    log_.waiting.erase(now_);
    if (log_.verbose) log_.steps.push_back({"at " + std::to_string(now_.ns())});
  }
  void join(RequestId id) override {
    note("join", id.serial);
    decision_.join(id);
  }
  void resume(RequestId id) override {
    note("resume", id.serial);
    decision_.resume(id);
  }
  void fetch(RequestId id, Tokens upto) override {
    note("fetch", id.serial);
    decision_.fetch(id, upto);
  }
  void move(const Move& move) override { decision_.move(move); }
  void drop(const Holder& holder, const BlockRange& range, TierId tier) override {
    decision_.drop(holder, range, tier);
  }
  void chunk(RequestId id, Tokens tokens) override {
    note("chunk", id.serial, tokens.count());
    decision_.chunk(id, tokens);
  }
  void reserve(RequestId id, Tokens upto) override {
    note("reserve", id.serial, upto.count());
    decision_.reserve(id, upto);
  }
  void leave(RequestId id, Leave why) override {
    note(why == Leave::preempt_recompute ? "recompute" : "swap out", id.serial);
    decision_.leave(id, why);
  }
  void sub_batch(RequestId id, std::int32_t number) override {
    note("sub-batch", id.serial, number);
    decision_.sub_batch(id, number);
  }
  void reject(RequestId id) override {
    note("reject", id.serial);
    decision_.reject(id);
  }
  void decodes(std::int64_t count) override {
    note("decodes", count);
    decision_.decodes(count);
  }
  void idle() override {
    note("idle", 0);
    decision_.idle();
  }
  void blocked(Blocked why) override {
    note("blocked", static_cast<std::int64_t>(why));
    log_.waiting[now_] = why;
    decision_.blocked(why);
  }

 private:
  void note(const std::string& what, std::int64_t first, std::int64_t second = -1) {
    if (!log_.verbose) return;
    const std::string size = second < 0 ? "" : " (" + std::to_string(second) + ")";
    log_.steps.back().push_back(what + " " + std::to_string(first) + size);
  }

  Decision& decision_;
  DecisionLog& log_;
  SimTime now_;
};

class LoggedScheduler final : public Scheduler {
 public:
  LoggedScheduler(std::unique_ptr<Scheduler> scheduler, DecisionLog& log)
      : scheduler_(std::move(scheduler)), log_(log) {}
  void arrived(const RequestView& request) override { scheduler_->arrived(request); }
  void iteration_ended() override { scheduler_->iteration_ended(); }
  void ended(RequestId id, Outcome outcome) override { scheduler_->ended(id, outcome); }
  void decide(const View& view, const KvSpace& kv, Decision& decision) override {
    LoggedDecision logged(decision, view, log_);
    scheduler_->decide(view, kv, logged);
  }

 private:
  std::unique_ptr<Scheduler> scheduler_;
  DecisionLog& log_;
};

/// The policy, with what it decides noted in `log`, which must outlive its runs.
inline PolicyInfo logged(const PolicyInfo& policy, std::function<Policy(const PolicyContext&)> make, DecisionLog& log) {
  PolicyInfo info = policy;
  info.steady_decodes = false;  // so that it is asked for every decision
  info.make = [make = std::move(make), &log](const PolicyContext& context) {
    Policy made = make(context);
    made.scheduler = std::make_unique<LoggedScheduler>(std::move(made.scheduler), log);
    return made;
  };
  return info;
}

}  // namespace spillway::oracle
