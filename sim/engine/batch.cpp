#include "sim/engine/batch.hpp"

#include <algorithm>
#include <bit>
#include <functional>
#include <utility>

namespace spillway {

std::int32_t Batch::create(RequestId id) {
  if (free_.empty()) {
    free_.push_back(static_cast<std::int32_t>(members_.size()));
    members_.emplace_back();
  }
  const std::int32_t m = free_.back();
  free_.pop_back();
  std::vector<std::int32_t> blocks = std::move((*this)[m].blocks);
  blocks.clear();
  (*this)[m] = Member{};
  (*this)[m].blocks = std::move(blocks);
  (*this)[m].id = id;
  return m;
}

void Batch::destroy(std::int32_t m) {
  (*this)[m].id = kNoRequest;
  free_.push_back(m);
}

void Batch::append(std::int32_t m) {
  Member& member = (*this)[m];
  member.order = next_order_++;
  member.prev = last_;
  member.next = -1;
  (last_ >= 0 ? (*this)[last_].next : first_) = m;
  last_ = m;
  ++size_;
}

void Batch::unlink(std::int32_t m) {
  const Member& member = (*this)[m];
  (member.prev >= 0 ? (*this)[member.prev].next : first_) = member.next;
  (member.next >= 0 ? (*this)[member.next].prev : last_) = member.prev;
  --size_;
}

void Batch::start_decoding(std::int32_t m) {
  Member& member = (*this)[m];
  const Tokens generated = member.known - member.input;
  member.phase = Phase::decoding;
  if (windows_) windows_->start(member.computed);
  member.computed -= steps_;
  member.computing -= decode_time_;
  member.finish_step = steps_ + (member.output - generated);
  const Tokens final_tokens = member.input + member.output - Tokens(1);
  member.covered = member.held >= blocks_for(final_tokens, block_);
  context_ += member.computed;
  ++decoding_;
  enter_ring(m);
  enter_growth(m);
  enter_group(m);
}

void Batch::enter_group(std::int32_t m) {
  Member& member = (*this)[m];
  if (member.on_host) return count_on_host(member, 1);
  if (member.sub_batch == 0) return enter_longest(m);
  member.apart_at = static_cast<std::int32_t>(apart_.size());
  apart_.push_back(m);
}

void Batch::count_on_host(const Member& member, std::int64_t sign) {
  OnHost& group = on_host_[static_cast<std::size_t>(member.sub_batch)];
  group.sequences += sign;
  group.context += member.computed * sign;
  hosted_ += sign;
}

void Batch::leave_group(std::int32_t m) {
  if ((*this)[m].on_host) return count_on_host((*this)[m], -1);
  const std::int32_t at = std::exchange((*this)[m].apart_at, -1);
  if (at < 0) return;
  const std::int32_t last = apart_.back();
  apart_.pop_back();
  if (last == m) return;
  apart_[static_cast<std::size_t>(at)] = last;
  (*this)[last].apart_at = at;
}

void Batch::set_sub_batch(std::int32_t m, std::int32_t number) {
  Member& member = (*this)[m];
  if (member.phase == Phase::decoding) leave_group(m);
  member.sub_batch = number;
  if (member.phase != Phase::decoding) return;
  enter_group(m);
  drop_outdated_longest();
}

void Batch::stop_decoding(std::int32_t m, Phase phase) {
  Member& member = (*this)[m];
  if (windows_) windows_->stop(computed(member));
  leave_growth(m);
  leave_ring(m);
  leave_group(m);
  context_ -= member.computed;
  --decoding_;
  member.last_token = last_token(member);
  if (member.late) std::erase(late_, m);
  member.late = false;
  member.held = held(member);
  member.known = known(member);
  member.computed = computed(member);
  member.computing = computing(member);
  member.phase = phase;
  drop_outdated_longest();
}

void Batch::skip(std::int32_t m, Duration duration) {
  Member& member = (*this)[m];
  if (windows_) {
    const Tokens now = computed(member);
    windows_->stop(now);
    windows_->change(now, now - Tokens(1));
    windows_->start(now - Tokens(1));
  }
  leave_growth(m);
  leave_ring(m);
  member.computed -= Tokens(1);
  context_ -= Tokens(1);
  if (member.on_host) on_host_[static_cast<std::size_t>(member.sub_batch)].context -= Tokens(1);
  member.finish_step += Tokens(1);
  member.computing -= duration;
  enter_ring(m);
  enter_growth(m);
  enter_longest(m);
  drop_outdated_longest();
}

void Batch::enter_longest(std::int32_t m) {
  // Making the heap anew once most entries are outdated keeps it as small as the batch.
  if (longest_.size() > 64 + 2 * static_cast<std::size_t>(decoding_)) {
    longest_.clear();
    for (std::int32_t other = first_; other >= 0; other = (*this)[other].next) {
      const Member& member = (*this)[other];
      if (in_longest(member)) longest_.push_back({member.computed, other});
    }
    std::make_heap(longest_.begin(), longest_.end());
  }
  longest_.push_back({(*this)[m].computed, m});
  std::push_heap(longest_.begin(), longest_.end());
}

void Batch::drop_outdated_longest() {
  while (!longest_.empty() && !is_true(longest_.front())) {
    std::pop_heap(longest_.begin(), longest_.end());
    longest_.pop_back();
  }
}

void Batch::mark_late(std::int32_t m, SimTime when) {
  (*this)[m].late = true;
  (*this)[m].last_token = when;
  late_.push_back(m);
}

void Batch::clear_late() {
  for (const std::int32_t m : late_) (*this)[m].late = false;
  late_.clear();
}

void Batch::enter_ring(std::int32_t m) {
  const Tokens ahead = (*this)[m].finish_step - steps_;
  if (ahead >= Tokens(std::ssize(ring_))) grow_ring(ahead);
  std::int32_t& head = ring_[place_in_ring((*this)[m].finish_step)];
  (*this)[m].ring_prev = -1;
  (*this)[m].ring_next = head;
  if (head >= 0) (*this)[head].ring_prev = m;
  head = m;
}

void Batch::leave_ring(std::int32_t m) {
  const Member& member = (*this)[m];
  if (member.ring_prev >= 0) {
    (*this)[member.ring_prev].ring_next = member.ring_next;
  } else {
    ring_[place_in_ring(member.finish_step)] = member.ring_next;
  }
  if (member.ring_next >= 0) (*this)[member.ring_next].ring_prev = member.ring_prev;
}

void Batch::grow_ring(Tokens span) {
  std::vector<std::int32_t> members;
  for (std::int32_t m : ring_) {
    for (; m >= 0; m = (*this)[m].ring_next) members.push_back(m);
  }
  ring_.assign(std::bit_ceil(static_cast<std::size_t>(span.count()) + 1), -1);
  for (const std::int32_t m : members) enter_ring(m);
}

void Batch::enter_growth(std::int32_t m) {
  const std::size_t c = growth_class((*this)[m]);
  ((*this)[m].on_host ? host_growth_count_ : growth_count_)[c] += (*this)[m].covered ? 0 : 1;
  if (!with_identity_) return;
  (*this)[m].growth_at = static_cast<std::int32_t>(growth_[c].size());
  growth_[c].push_back(m);
}

void Batch::leave_growth(std::int32_t m) {
  const std::size_t c = growth_class((*this)[m]);
  ((*this)[m].on_host ? host_growth_count_ : growth_count_)[c] -= (*this)[m].covered ? 0 : 1;
  if (!with_identity_) return;
  const auto at = static_cast<std::size_t>((*this)[m].growth_at);
  growth_[c][at] = growth_[c].back();
  (*this)[growth_[c][at]].growth_at = static_cast<std::int32_t>(at);
  growth_[c].pop_back();
}

std::vector<std::int32_t>& Batch::in_batch_order(const std::vector<std::int32_t>& members) {
  if (&members != &scratch_) scratch_.assign(members.begin(), members.end());
  std::sort(scratch_.begin(), scratch_.end(),
            [this](std::int32_t a, std::int32_t b) { return (*this)[a].order < (*this)[b].order; });
  return scratch_;
}

std::vector<std::int32_t>& Batch::growing() {
  scratch_.clear();
  for (const std::int32_t m : growth_[step_class_]) {
    if (!(*this)[m].covered) scratch_.push_back(m);
  }
  return in_batch_order(scratch_);
}
std::vector<std::int32_t>& Batch::filling() { return in_batch_order(growth_[next_class()]); }

std::int64_t Batch::steps_to_finish(std::int64_t most) const {
  // Beyond the ring's size nothing finishes.
  most = std::min<std::int64_t>(most, std::ssize(ring_));
  for (std::int64_t steps = 1; steps < most; ++steps) {
    if (ring_[place_in_ring(steps_ + Tokens(steps))] >= 0) return steps;
  }
  return most;
}

std::vector<std::int32_t>& Batch::finishing() {
  scratch_.clear();
  std::int32_t m = ring_[place_in_ring(steps_)];
  for (; m >= 0; m = (*this)[m].ring_next) scratch_.push_back(m);
  return in_batch_order(scratch_);
}

}  // namespace spillway
