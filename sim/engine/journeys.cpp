#include "sim/engine/journeys.hpp"

#include <algorithm>
#include <utility>

#include "sim/engine/simulation.hpp"

namespace spillway {

Journeys::Journeys(const SimulationConfig& config, ReplicaPools& pools, std::span<const Replica> replicas, Run& run,
                   bool beside_copies)
    : config_(config), pools_(pools), replicas_(replicas), run_(run) {
  if (config.handover) transfers_.emplace(config.handover->links, config.handover->gpus, beside_copies);
}

// --- what instances report
// ----------------------------------------------------------------------------------------------

void Journeys::ended(const RequestRecord& record, std::size_t replica, Outcome outcome) {
  const auto number = static_cast<std::uint32_t>(record.index);
  ended_.push_back({record, replica, number, outcome});
  ended_.back().record.index = serial_of(number);
  aliases_.erase(number);
}

bool Journeys::sends_on(std::uint32_t number, std::size_t replica) const {
  const auto found = journeys_.find(serial_of(number));
  return found != journeys_.end() && is_at(found->second, replica, number) && goes_on(found->second, replica);
}

bool Journeys::hands_over(std::uint32_t number, std::size_t replica) const {
  const auto found = journeys_.find(serial_of(number));
  return found != journeys_.end() && is_at(found->second, replica, number) && is_handed_over(found->second);
}

void Journeys::begins_prompt(std::uint32_t number) {
  if (handover().by_layers) begun_.push_back(serial_of(number));
}

void Journeys::awaits_kv(std::uint32_t number, Blocks blocks) { admitted_.push_back({serial_of(number), blocks}); }

void Journeys::follow() {
  while (!ended_.empty() || !admitted_.empty() || !begun_.empty()) {
    for (const Ended& one : std::exchange(ended_, {})) follow_end(one);
    for (const Admitted& one : std::exchange(admitted_, {})) follow_admission(one);
    for (const std::uint32_t serial : std::exchange(begun_, {})) move_layers(serial);
  }
  expect_transfers();
}

void Journeys::follow_end(const Ended& one) {
  const auto serial = static_cast<std::uint32_t>(one.record.index);
  const auto found = journeys_.find(serial);
  if (found == journeys_.end() || !is_at(found->second, one.replica, one.number)) return;  // it was withdrawn
  // Nothing has come up or gone down since the instance asked.
  if (one.record.refused && goes_on(found->second, one.replica)) return send_on(serial, one.replica);
  if (computes_prompts(one.replica)) {
    follow_prompt_end(serial, found->second, one);
  } else {
    follow_answer_end(serial, found->second, one);
  }
}

void Journeys::follow_prompt_end(std::uint32_t serial, Journey& journey, const Ended& one) {
  journey.there = false;
  if (one.outcome == Outcome::lost && config_.retry) return lose(serial);
  if (one.outcome != Outcome::finished || !is_handed_over(journey)) return finish_as(serial, one.record, one.outcome);
  if (journey.given_up) {
    let_go(journey);
    RequestRecord record = one.record;
    count_no_token(record);
    return finish_as(serial, record, Outcome::timed_out);
  }
  journey.prompt = one.record;
  if (journey.restart) return lose(serial);
  if (journey.layers == Layers::moving) return;
  journey.admitted ? transfer(serial) : choose_decode(serial);
}

void Journeys::follow_answer_end(std::uint32_t serial, Journey& journey, const Ended& one) {
  journey.decode_there = false;
  if (one.outcome != Outcome::lost) return finish(serial, one.record);
  // A client that has given up while the prompt is computed hears that, when the iteration has ended.
  if (!config_.retry && !journey.given_up) return finish_as(serial, one.record, Outcome::lost);
  if (journey.handed_over) return lose(serial);
  transfers_->cancel(serial, run_.now());
  if (!handover().by_layers) return choose_decode(serial);  // the KV is where it was computed
  // A prompt whose KV waits until another replica admits the request could hold the memory that this admission waits
  // for: layer by layer, it starts anew.
  if (!journey.there) return lose(serial);
  journey.restart = true;
  journey.admitted = false;  // no more layers go there
}

void Journeys::follow_admission(const Admitted& one) {
  const auto found = journeys_.find(one.serial);
  if (found == journeys_.end() || !found->second.decode_there) return;
  Journey& journey = found->second;
  journey.admitted = true;
  journey.wanted = one.blocks;
  journey.prompt ? transfer(one.serial) : submit_prompt(one.serial);
}

bool Journeys::is_at(const Journey& journey, std::size_t replica, std::uint32_t number) const {
  return computes_prompts(replica)
             ? journey.there && journey.replica == replica && journey.id.serial == number
             : journey.decode_there && journey.decode == replica && journey.decode_id.serial == number;
}

bool Journeys::computes_prompts(std::size_t replica) const {
  return !config_.handover || pools_.of(replica) != handover().answers();
}

const Handover& Journeys::handover() const { return *config_.handover; }

std::size_t Journeys::pool_of(const RequestSpec& spec) const {
  return config_.handover ? handover().pool_of(spec.traits.pool) : spec.traits.pool;
}

bool Journeys::is_handed_over(const Journey& journey) const {
  if (!config_.handover || journey.spec.traits.pool != handover().kind) return false;
  return !handover().first_token_at_prefill || journey.spec.output > Tokens(1);
}

bool Journeys::admits_first(const Journey& journey) const { return is_handed_over(journey) && handover().by_layers; }

RequestSpec Journeys::answer_spec(const Journey& journey) const {
  RequestSpec spec = journey.spec;
  if (!handover().first_token_at_prefill) return spec;
  spec.input += Tokens(1);
  spec.output -= Tokens(1);
  spec.max_new_tokens -= Tokens(1);
  return spec;
}

// --- on its way
// ---------------------------------------------------------------------------------------------------------

void Journeys::begin(std::uint32_t serial, const RequestSpec& spec) {
  const std::size_t first = pools_.range(pool_of(spec)).first;
  journeys_.emplace(serial, Journey{.spec = spec, .sent = run_.now(), .last = first});
  set_out(serial);
}

void Journeys::set_out(std::uint32_t serial) {
  Journey& journey = journeys_.at(serial);
  const bool both = admits_first(journey);
  const std::size_t pool = pool_of(journey.spec);
  const bool up = pools_.any_up(pool) && (!both || pools_.any_up(handover().answers()));
  if (!up) return hold(serial);
  journey.last = journey.replica = pools_.send(journey.spec, pool);
  journey.unreached = true;
  if (both) {
    journey.decode = pools_.send(answer_spec(journey), handover().answers());
    journey.decode_unreached = true;
  }
  journey.passing = true;
  run_.pass(serial, pool);
}

void Journeys::hold(std::uint32_t serial) {
  if (std::ranges::count(held_, serial) == 0) held_.push_back(serial);
  give_deadline(serial);
}

void Journeys::give_deadline(std::uint32_t serial) {
  Journey& journey = journeys_.at(serial);
  if (!std::exchange(journey.has_deadline, true)) run_.give_deadline(serial, journey.sent);
}

void Journeys::passed(std::uint32_t serial) {
  const auto found = journeys_.find(serial);
  if (found == journeys_.end() || !std::exchange(found->second.passing, false)) return;
  const Journey& journey = found->second;
  const bool up = replicas_[journey.replica].up && (journey.decode == kNowhere || replicas_[journey.decode].up);
  up ? reach(serial) : lose(serial);
}

void Journeys::reach(std::uint32_t serial) {
  give_deadline(serial);
  journeys_.at(serial).decode == kNowhere ? submit_prompt(serial) : submit_answer(serial);
}

std::uint32_t Journeys::number_of(std::uint32_t serial, Journey& journey, std::size_t replica) {
  if (std::ranges::count(journey.known_to, replica) == 0) {
    journey.known_to.push_back(replica);
    return serial;
  }
  SPILLWAY_CHECK(next_alias_ < UINT32_MAX, "requests come again more often than a run can number");
  aliases_.emplace(next_alias_, serial);
  return next_alias_++;
}

std::uint32_t Journeys::serial_of(std::uint32_t number) const {
  const auto found = aliases_.find(number);
  return found == aliases_.end() ? number : found->second;
}

void Journeys::submit_prompt(std::uint32_t serial) {
  Journey& journey = journeys_.at(serial);
  journey.unreached = false;
  journey.there = true;
  const std::uint32_t number = number_of(serial, journey, journey.replica);
  journey.id = run_.at(journey.replica).submit(journey.spec, number, serial, journey.sent, run_.now());
  run_.wake(journey.replica);
}

void Journeys::submit_answer(std::uint32_t serial) {
  Journey& journey = journeys_.at(serial);
  journey.decode_unreached = false;
  journey.decode_there = true;
  const std::uint32_t number = number_of(serial, journey, journey.decode);
  journey.decode_id = run_.at(journey.decode).submit(answer_spec(journey), number, serial, journey.sent, run_.now());
  run_.wake(journey.decode);
}

void Journeys::choose_decode(std::uint32_t serial) {
  Journey& journey = journeys_.at(serial);
  journey.decode = kNowhere;
  journey.admitted = false;
  if (!pools_.any_up(handover().answers())) return hold(serial);
  journey.decode = pools_.send(answer_spec(journey), handover().answers());
  submit_answer(serial);
}

bool Journeys::goes_on(const Journey& journey, std::size_t refuser) const {
  if (!computes_prompts(refuser) && journey.admitted) return false;
  std::vector<std::size_t> refused_by = journey.refused_by;
  refused_by.push_back(refuser);
  return pools_.any_other(pools_.of(refuser), refused_by);
}

void Journeys::send_on(std::uint32_t serial, std::size_t refuser) {
  Journey& journey = journeys_.at(serial);
  journey.refused_by.push_back(refuser);
  const std::size_t pool = pools_.of(refuser);
  if (computes_prompts(refuser)) {
    journey.last = journey.replica = pools_.send_on(journey.spec, pool, journey.refused_by);
    return submit_prompt(serial);
  }
  journey.decode = pools_.send_on(answer_spec(journey), pool, journey.refused_by);
  submit_answer(serial);
}

// --- hand-over
// ----------------------------------------------------------------------------------------------------------

void Journeys::transfer(std::uint32_t serial) {
  Journey& journey = journeys_.at(serial);
  if (journey.wanted == Blocks(0)) return hand_over(serial);
  if (journey.layers == Layers::moved) return move_part(serial, journey, 1);
  journey.began = run_.now();
  move_part(serial, journey, layers_of(journey));
}

void Journeys::move_layers(std::uint32_t serial) {
  const auto found = journeys_.find(serial);
  if (found == journeys_.end()) return;
  Journey& journey = found->second;
  const bool may = journey.there && journey.admitted && journey.layers == Layers::none && journey.wanted > Blocks(0);
  if (!may || layers_of(journey) < 2) return;
  journey.layers = Layers::moving;
  journey.began = run_.now();
  move_part(serial, journey, layers_of(journey) - 1);
}

std::int32_t Journeys::layers_of(const Journey& journey) const {
  return config_.instances[journey.replica].model->layers();
}

void Journeys::move_part(std::uint32_t serial, const Journey& journey, std::int32_t layers) {
  const std::size_t first = pools_.range(handover().prompts()).first;
  const HandoverPath path = handover().path(journey.replica - first, journey.decode - first - handover().prefill);
  const auto all = static_cast<double>((bytes_of(journey) * handover().gpus).count());
  const double part = static_cast<double>(layers) / static_cast<double>(layers_of(journey));
  transfers_->start(serial, path, round_seconds(all * part / path.bandwidth.value()), run_.now());
}

Bytes Journeys::bytes_of(const Journey& journey) const {
  return config_.instances[journey.replica].kv.block_bytes * journey.wanted.count();
}

void Journeys::collect_transfers() {
  next_call_ = kNever;
  for (const std::uint32_t serial : transfers_->collect(run_.now(), run_.now() >= measured_from_)) {
    Journey& journey = journeys_.at(serial);
    if (journey.layers == Layers::moving) {
      journey.layers = Layers::moved;
      if (journey.prompt) transfer(serial);
    } else {
      hand_over(serial);
    }
  }
}

bool Journeys::is_transfer_due(SimTime at) {
  if (transfers_->next() <= at) return true;
  if (at == next_call_) next_call_ = kNever;
  expect_transfers();
  return false;
}

void Journeys::expect_transfers() {
  if (!transfers_ || transfers_->next() >= next_call_) return;
  next_call_ = transfers_->next();
  run_.call_for_transfers(next_call_);
}

void Journeys::hand_over(std::uint32_t serial) {
  Journey& journey = journeys_.at(serial);
  journey.handed_over = true;
  if (journey.wanted > Blocks(0)) {
    ++handed_over_.transfers;
    handed_over_.bytes += bytes_of(journey);
    handed_over_.waited += to_seconds(std::max(journey.began - journey.prompt->end, Duration{}));
    handed_over_.moved += to_seconds(run_.now() - journey.began);
    // Bytes per GPU, as those of other copies.
    run_.at(journey.replica).report_handover(serial, bytes_of(journey), false, journey.began, run_.now());
    run_.at(journey.decode).report_handover(serial, bytes_of(journey), true, journey.began, run_.now());
  }
  run_.at(journey.decode).kv_arrived(journey.decode_id, journey.prompt->end, run_.now());
  run_.wake(journey.decode);
  let_go(journey);
}

void Journeys::let_go(const Journey& journey) {
  run_.at(journey.replica).let_go(journey.id.serial, run_.now());
  run_.wake(journey.replica);
}

// --- failures and ends
// --------------------------------------------------------------------------------------------------

void Journeys::went_down(std::size_t replica) {
  // Those whose KV was there, and those that were to be computed there once another replica has room for them.
  std::vector<std::uint32_t> stranded;
  for (auto& [serial, journey] : journeys_) {
    std::erase(journey.known_to, replica);
    const bool waits = journey.unreached && !journey.passing;
    if (journey.replica == replica && (is_parked(journey) || waits)) stranded.push_back(serial);
  }
  follow();
  for (const std::uint32_t serial : stranded) {
    const auto found = journeys_.find(serial);
    if (found != journeys_.end() && found->second.replica == replica) lose(serial);
  }
}

void Journeys::came_up() {
  for (const std::uint32_t serial : std::exchange(held_, {})) {
    journeys_.at(serial).prompt ? choose_decode(serial) : set_out(serial);
  }
}

void Journeys::lose_held() {
  while (!held_.empty()) end(held_.front(), Outcome::lost);
}

void Journeys::lose(std::uint32_t serial) {
  if (!config_.retry) return end(serial, Outcome::lost);
  Journey& journey = journeys_.at(serial);
  leave(serial, journey);
  journey = Journey{.spec = std::move(journey.spec),
                    .sent = journey.sent,
                    .has_deadline = journey.has_deadline,
                    .known_to = std::move(journey.known_to),
                    .last = journey.last};
  set_out(serial);
}

void Journeys::leave(std::uint32_t serial, Journey& journey) {
  std::erase(held_, serial);
  withdraw_unreached(journey);
  if (transfers_) transfers_->cancel(serial, run_.now());
  if (is_parked(journey) && replicas_[journey.replica].up) let_go(journey);
  if (std::exchange(journey.there, false)) {
    run_.at(journey.replica).expire(journey.id, run_.now());
    run_.wake(journey.replica);
  }
  if (std::exchange(journey.decode_there, false)) {
    run_.at(journey.decode).expire(journey.decode_id, run_.now());
    run_.wake(journey.decode);
  }
  // That it has ended there is not what becomes of it.
  std::erase_if(ended_, [serial](const Ended& one) { return one.record.index == serial; });
}

void Journeys::withdraw_unreached(Journey& journey) {
  if (std::exchange(journey.unreached, false)) pools_.ended(journey.replica, Outcome::lost);
  if (std::exchange(journey.decode_unreached, false)) pools_.ended(journey.decode, Outcome::lost);
}

void Journeys::end(std::uint32_t serial, Outcome outcome) {
  Journey& journey = journeys_.at(serial);
  if (!stopped_) leave(serial, journey);
  RequestRecord record = journey.prompt.value_or(RequestRecord{});
  if (journey.prompt) count_no_token(record);
  record.index = serial;
  record.client = journey.spec.client;
  record.outcome = outcome;
  record.replica = static_cast<std::uint32_t>(journey.last);
  record.arrival = journey.sent;
  record.end = run_.now();
  record.input = journey.spec.input;
  record.output = journey.spec.output;
  record.traits = journey.spec.traits;
  journeys_.erase(serial);
  run_.record(record);
}

void Journeys::finish_as(std::uint32_t serial, RequestRecord record, Outcome outcome) {
  record.outcome = outcome;
  finish(serial, record);
}

void Journeys::finish(std::uint32_t serial, RequestRecord record) {
  Journey& journey = journeys_.at(serial);
  if (!stopped_) leave(serial, journey);
  record.replica = static_cast<std::uint32_t>(journey.last);
  if (journey.prompt) {
    add_prompt(*journey.prompt, record);
    record.decode_replica = static_cast<std::uint32_t>(journey.decode);
  }
  if (config_.handover) {
    record.input = journey.spec.input;
    record.output = journey.spec.output;
  }
  journeys_.erase(serial);
  run_.record(record);
}

void Journeys::count_no_token(RequestRecord& prompt) const {
  if (handover().first_token_at_prefill) return;
  prompt.first_token = kNever;
  prompt.generated = Tokens(0);
}

void Journeys::add_prompt(const RequestRecord& prompt, RequestRecord& record) {
  record.first_scheduled = prompt.first_scheduled;
  record.computing += prompt.computing;
  record.cached += prompt.cached;
  record.preempted_recompute += prompt.preempted_recompute;
  record.preempted_swap += prompt.preempted_swap;
  if (!handover().first_token_at_prefill) return;
  record.generated += Tokens(1);
  if (record.first_token != kNever) run_.record_gap(record.first_token - prompt.first_token, record.first_token);
  record.first_token = prompt.first_token;
}

void Journeys::give_up(std::uint32_t serial) {
  Journey& journey = journeys_.at(serial);
  if (!journey.there && !journey.decode_there) return end(serial, Outcome::timed_out);
  journey.given_up = true;
  const std::size_t replica = journey.there ? journey.replica : journey.decode;
  run_.at(replica).expire(journey.there ? journey.id : journey.decode_id, run_.now());
  run_.wake(replica);
}

void Journeys::stop() {
  stopped_ = true;
  for (const Ended& one : std::exchange(ended_, {})) {
    const auto serial = static_cast<std::uint32_t>(one.record.index);
    const auto found = journeys_.find(serial);
    if (found == journeys_.end() || !is_at(found->second, one.replica, one.number)) continue;
    // While its prompt is being computed, what the other replica says does not count.
    if (computes_prompts(one.replica) || !found->second.there) finish(serial, one.record);
  }
  while (!journeys_.empty()) end(journeys_.begin()->first, Outcome::unfinished);
}

}  // namespace spillway
