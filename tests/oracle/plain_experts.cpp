#include "tests/oracle/plain_experts.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <utility>

namespace spillway::oracle {
namespace {

std::int64_t rows_of(const std::vector<ExpertUse>& uses) {
  return std::accumulate(uses.begin(), uses.end(), std::int64_t{0},
                         [](std::int64_t sum, const ExpertUse& use) { return sum + use.tokens; });
}

/// Which experts of which layer are on the GPU: the `number` most popular of all layers. Of equal ones, those of the
/// first layer go first, then by its ranking.
std::vector<std::set<std::int32_t>> most_popular(const PlainExpertModel& model, std::int64_t number) {
  std::vector<std::set<std::int32_t>> chosen(model.rankings.size());
  for (std::int64_t i = 0; i < number; ++i) {
    double best = -1.0;
    std::size_t of_layer = 0;
    std::int32_t expert = -1;
    for (std::size_t l = 0; l < model.rankings.size(); ++l) {
      for (const std::int32_t e : model.rankings[l]) {
        const double popularity = model.popularity[l][static_cast<std::size_t>(e)];
        if (chosen[l].contains(e) || popularity <= best) continue;
        best = popularity;
        of_layer = l;
        expert = e;
      }
    }
    chosen[of_layer].insert(expert);
  }
  return chosen;
}

/// The K experts of a layer, the least recently used first.
class PlainSlots {
 public:
  explicit PlainSlots(std::vector<std::int32_t> first) : order_(std::move(first)) {}
  [[nodiscard]] bool holds(std::int32_t expert) const {
    return std::find(order_.begin(), order_.end(), expert) != order_.end();
  }
  void touch(std::int32_t expert) {
    order_.erase(std::find(order_.begin(), order_.end(), expert));
    order_.push_back(expert);
  }
  /// Returns the expert that leaves.
  std::int32_t replace_oldest(std::int32_t expert) {
    const std::int32_t left = order_.front();
    order_.erase(order_.begin());
    order_.push_back(expert);
    return left;
  }

 private:
  std::vector<std::int32_t> order_;
};

/// 8.2: at first the experts with the highest numbers, E - K to E - 1.
std::vector<PlainSlots> highest_numbers(const PlainExpertModel& model, std::int32_t slots) {
  std::vector<std::int32_t> first(static_cast<std::size_t>(slots));
  std::iota(first.begin(), first.end(), model.count - slots);
  return {model.rankings.size(), PlainSlots(first)};
}

/// 8.5, RES: at first the most popular ones. The least popular of them leaves first.
std::vector<PlainSlots> popular_slots(const PlainExpertModel& model, std::int32_t slots) {
  std::vector<PlainSlots> all;
  for (const std::vector<std::int32_t>& ranking : model.rankings) {
    std::vector<std::int32_t> first(ranking.begin(), ranking.begin() + slots);
    std::reverse(first.begin(), first.end());
    all.emplace_back(first);
  }
  return all;
}

}  // namespace

std::int64_t PlainExpertPolicy::iterate(std::int64_t start, const PlainExpertStep& step) {
  std::int64_t now = start;
  std::int32_t layer = 0;
  for (const bool has_experts : model_.has_experts) {
    now += times().step;
    if (has_experts) now = after_gate(now, layer++, step);
  }
  return now;
}

std::int64_t PlainExpertPolicy::on_gpu(std::int64_t experts, std::int64_t rows) {
  counts_.arithmetic += times().gpu_row * rows > times().gpu_weights * experts ? 1 : 0;
  return std::max(times().gpu_weights * experts, times().gpu_row * rows);
}

std::int64_t PlainExpertPolicy::on_gpu(const std::vector<ExpertUse>& uses) {
  return on_gpu(std::ssize(uses), rows_of(uses));
}

std::int64_t PlainExpertPolicy::on_cpu(const std::vector<ExpertUse>& uses) {
  const std::int64_t rows = rows_of(uses);
  const std::int64_t row = rows > kManyRows * std::ssize(uses) ? times().cpu_row_many : times().cpu_row;
  counts_.arithmetic += row * rows > times().cpu_weights * std::ssize(uses) ? 1 : 0;
  return std::max(times().cpu_weights * std::ssize(uses), row * rows);
}

namespace {

// ------------------------------------------------------------------------------------------------ 8.2, as in the paper

class MixtralPaper final : public PlainExpertPolicy {
 public:
  MixtralPaper(const PlainExpertModel& model, std::int32_t slots, std::int32_t ahead)
      : PlainExpertPolicy(model), slots_(highest_numbers(model, slots)), k_(slots), ahead_(ahead) {}

 private:
  static constexpr std::int64_t kBuffers = 4;
  struct Load {
    std::int32_t expert = 0;
    std::int64_t start = 0;
    std::int64_t end = 0;
  };

  [[nodiscard]] std::int64_t copy_time() const { return times().launch + times().copy; }
  /// At the end of the link's FIFO, at `now`.
  Load load(std::int32_t expert, std::int64_t now) {
    const std::int64_t start = std::max(now, link_free_);
    link_free_ = start + copy_time();
    return {expert, start, link_free_};
  }

  std::int64_t after_gate(std::int64_t gate, std::int32_t layer, const PlainExpertStep& step) override {
    const std::vector<ExpertUse>& used = step.used[static_cast<std::size_t>(layer)];
    PlainSlots& slots = slots_[static_cast<std::size_t>(layer)];
    const auto tokens_of = [&](std::int32_t expert) {
      const auto use = std::find_if(used.begin(), used.end(), [&](const ExpertUse& u) { return u.expert == expert; });
      return use == used.end() ? 0 : use->tokens;
    };

    std::vector<std::int32_t> taken;  // slots of the least recently used
    // Loads ahead that have not started leave the queue. Those in use are loads like any other.
    std::vector<Load> started;
    for (const Load& one : speculative_) {
      if (one.start <= gate) {
        started.push_back(one);
      } else {
        ++(tokens_of(one.expert) > 0 ? counts_.kept_queued : counts_.dropped);
      }
    }
    if (!speculative_.empty()) link_free_ = started.empty() ? free_before_ : started.back().end;

    // Hits: residents by number, then what has arrived. Then what is on its way, then loads by number.
    std::vector<std::int32_t> hits;
    for (const ExpertUse& use : used) {
      if (!slots.holds(use.expert)) continue;
      hits.push_back(use.expert);
      slots.touch(use.expert);
    }
    std::vector<Load> awaited;
    std::int64_t unused = 0;
    for (const Load& one : started) {
      ++counts_.prefetched;
      if (tokens_of(one.expert) == 0) {
        ++unused;
      } else if (one.end <= gate) {
        hits.push_back(one.expert);
        taken.push_back(one.expert);
      } else {
        awaited.push_back(one);
        ++counts_.late;
      }
    }
    for (const ExpertUse& use : used) {
      const auto known = [&](const Load& l) { return l.expert == use.expert; };
      if (std::find(hits.begin(), hits.end(), use.expert) != hits.end()) continue;
      if (std::any_of(awaited.begin(), awaited.end(), known)) continue;
      awaited.push_back(load(use.expert, gate));
      ++counts_.demanded;
    }
    for (const Load& one : awaited) taken.push_back(one.expert);
    for (const std::int32_t expert : taken) slots.replace_oldest(expert);
    counts_.resident += std::ssize(hits);
    counts_.loaded += std::ssize(awaited);
    counts_.unused += unused;
    counts_.beyond_slots += std::ssize(used) > k_ ? 1 : 0;

    // The last load has ended: the likeliest experts of the next layer go into free buffers.
    const std::int64_t last = awaited.empty() ? gate : awaited.back().end;
    speculative_.clear();
    free_before_ = link_free_;
    if (layer + 1 < model_.expert_layers() && std::ssize(used) < model_.count) {
      const std::vector<std::int32_t>& guesses = step.guesses[static_cast<std::size_t>(layer) + 1];
      for (std::size_t i = 0; i < guesses.size() && std::cmp_less(i, ahead_); ++i) {
        if (slots_[static_cast<std::size_t>(layer) + 1].holds(guesses[i])) continue;
        if (std::ssize(speculative_) + unused == kBuffers) {
          ++counts_.beyond_buffers;
          break;
        }
        speculative_.push_back(load(guesses[i], last));
      }
    }

    std::int64_t now = gate;
    for (const std::int32_t expert : hits) now += on_gpu(1, tokens_of(expert));
    for (const Load& one : awaited) now = std::max(now, one.end) + on_gpu(1, tokens_of(one.expert));
    return now;
  }

  std::vector<PlainSlots> slots_;
  std::int32_t k_;
  std::int32_t ahead_;
  std::int64_t link_free_ = 0;
  std::int64_t free_before_ = 0;   // when the link was free before the loads ahead
  std::vector<Load> speculative_;  // for the next layer
};

// ------------------------------------------------------------------------------------------ 8.2, as in the public code

class MixtralPublished final : public PlainExpertPolicy {
 public:
  MixtralPublished(const PlainExpertModel& model, std::int32_t slots)
      : PlainExpertPolicy(model), slots_(highest_numbers(model, slots)), k_(slots) {}

 private:
  std::int64_t after_gate(std::int64_t gate, std::int32_t layer, const PlainExpertStep& step) override {
    const std::vector<ExpertUse>& used = step.used[static_cast<std::size_t>(layer)];
    PlainSlots& slots = slots_[static_cast<std::size_t>(layer)];
    counts_.beyond_slots += std::ssize(used) > k_ ? 1 : 0;
    std::vector<std::int32_t> misses;
    std::int64_t now = gate;
    for (const ExpertUse& use : used) {
      now += on_gpu(1, use.tokens);
      if (slots.holds(use.expert)) {
        ++counts_.resident;
      } else {
        misses.push_back(use.expert);
      }
    }
    for (const ExpertUse& use : used) {
      if (slots.holds(use.expert)) slots.touch(use.expert);
    }
    for (const std::int32_t expert : misses) {
      slots.replace_oldest(expert);
      now += 2 * (times().launch + times().copy);  // the wanted expert in, its victim out
      ++counts_.loaded;
      ++counts_.demanded;
    }
    return now;
  }

  std::vector<PlainSlots> slots_;
  std::int32_t k_;
};

// ------------------------------------------------------------------------------------------------------ 8.5, the cache

class CacheOnCpu final : public PlainExpertPolicy {
 public:
  CacheOnCpu(const PlainExpertModel& model, std::int32_t slots, std::int64_t uploads)
      : PlainExpertPolicy(model),
        slots_(popular_slots(model, slots)),
        coming_(slots_.size()),
        k_(slots),
        uploads_(uploads) {}

 private:
  struct Upload {
    std::int32_t expert = 0;
    std::int64_t end = 0;
  };

  std::int64_t after_gate(std::int64_t gate, std::int32_t layer, const PlainExpertStep& step) override {
    const std::vector<ExpertUse>& used = step.used[static_cast<std::size_t>(layer)];
    PlainSlots& slots = slots_[static_cast<std::size_t>(layer)];
    std::vector<Upload>& coming = coming_[static_cast<std::size_t>(layer)];
    std::erase_if(coming, [&](const Upload& upload) { return upload.end <= gate; });
    const auto on_its_way = [&](std::int32_t expert) {
      return std::any_of(coming.begin(), coming.end(), [&](const Upload& upload) { return upload.expert == expert; });
    };
    std::vector<ExpertUse> hits;
    std::vector<ExpertUse> misses;
    std::vector<ExpertUse> wanted;
    for (const ExpertUse& use : used) {
      if (on_its_way(use.expert)) {
        ++counts_.late;
        misses.push_back(use);
        slots.touch(use.expert);
      } else if (slots.holds(use.expert)) {
        hits.push_back(use);
        slots.touch(use.expert);
      } else {
        misses.push_back(use);
        wanted.push_back(use);
      }
    }
    counts_.resident += std::ssize(hits);
    counts_.on_cpu += std::ssize(misses);
    counts_.beyond_slots += std::ssize(used) > k_ ? 1 : 0;
    std::int64_t gpu_end = gate;
    for (const ExpertUse& use : hits) gpu_end += on_gpu(1, use.tokens);
    if (misses.empty()) return gpu_end;

    const std::int64_t way = times().sync + times().hidden * step.tokens();
    const std::int64_t work = times().cpu_start + on_cpu(misses);
    counts_.cpu_read += std::ssize(misses);
    counts_.cpu_busy += work;
    const std::int64_t back = std::max(gate + way + work, link_free_) + way;
    const std::int64_t end = std::max(gpu_end, back);
    link_free_ = end;
    (back > gpu_end ? counts_.waited_for_cpu : counts_.waited_for_gpu) += 1;

    // Most tokens first; of equal ones, the lower number.
    std::stable_sort(wanted.begin(), wanted.end(),
                     [](const ExpertUse& a, const ExpertUse& b) { return a.tokens > b.tokens; });
    counts_.uploads_cut += std::ssize(wanted) > uploads_ ? 1 : 0;
    for (std::size_t i = 0; i < wanted.size() && std::cmp_less(i, uploads_); ++i) {
      // An expert on its way may be the least recently used one. Its copy goes on, for nothing.
      const std::int32_t left = slots.replace_oldest(wanted[i].expert);
      std::erase_if(coming, [&](const Upload& upload) { return upload.expert == left; });
      link_free_ += times().launch * model_.matrices + times().copy;
      coming.push_back({wanted[i].expert, link_free_});
      ++counts_.demanded;
    }
    return end;
  }

  std::vector<PlainSlots> slots_;
  std::vector<std::vector<Upload>> coming_;
  std::int32_t k_;
  std::int64_t uploads_;
  std::int64_t link_free_ = 0;
};

class CacheAwaited final : public PlainExpertPolicy {
 public:
  CacheAwaited(const PlainExpertModel& model, std::int32_t slots)
      : PlainExpertPolicy(model), slots_(popular_slots(model, slots)), k_(slots) {}

 private:
  std::int64_t after_gate(std::int64_t gate, std::int32_t layer, const PlainExpertStep& step) override {
    const std::vector<ExpertUse>& used = step.used[static_cast<std::size_t>(layer)];
    PlainSlots& slots = slots_[static_cast<std::size_t>(layer)];
    counts_.beyond_slots += std::ssize(used) > k_ ? 1 : 0;
    std::vector<ExpertUse> hits;
    std::vector<ExpertUse> misses;
    for (const ExpertUse& use : used) (slots.holds(use.expert) ? hits : misses).push_back(use);
    for (const ExpertUse& use : hits) slots.touch(use.expert);
    std::int64_t now = gate;
    for (const ExpertUse& use : hits) now += on_gpu(1, use.tokens);
    std::int64_t arrival = gate;
    for (const ExpertUse& use : misses) {
      slots.replace_oldest(use.expert);
      arrival += times().launch * model_.matrices + times().copy;
      now = std::max(now, arrival) + on_gpu(1, use.tokens);
    }
    counts_.resident += std::ssize(hits);
    counts_.loaded += std::ssize(misses);
    counts_.demanded += std::ssize(misses);
    return now;
  }

  std::vector<PlainSlots> slots_;
  std::int32_t k_;
};

// ------------------------------------------------------------------------------------------------- 8.1, --n-cpu-moe

class LlamaCpp final : public PlainExpertPolicy {
 public:
  LlamaCpp(const PlainExpertModel& model, std::int32_t layers, std::int64_t min_batch, std::int64_t pageable)
      : PlainExpertPolicy(model), min_batch_(min_batch), pageable_(pageable) {
    for (std::int32_t layer = 0; layer < layers; ++layer) {
      on_host_ += model.has_experts[static_cast<std::size_t>(layer)] ? 1 : 0;
    }
  }

 private:
  std::int64_t after_gate(std::int64_t gate, std::int32_t layer, const PlainExpertStep& step) override {
    const std::vector<ExpertUse>& used = step.used[static_cast<std::size_t>(layer)];
    const std::int64_t d = std::ssize(used);
    if (d == 0) return gate;
    if (layer >= on_host_) {
      counts_.resident += d;
      return gate + on_gpu(used);
    }
    if (min_batch_ == 0 || step.tokens() < min_batch_) {
      const std::int64_t work = times().cpu_start + on_cpu(used);
      counts_.on_cpu += d;
      counts_.cpu_read += d;
      counts_.cpu_busy += work;
      return gate + work + 2 * (times().sync + times().hidden * step.tokens());
    }
    counts_.loaded += d;
    counts_.demanded += d;
    // Whole runs, rounded to the nearest: d (E - d + 1) / E.
    const std::int64_t runs = (2 * d * (model_.count - d + 1) + model_.count) / (2LL * model_.count);
    return gate + times().sync + runs * model_.matrices * times().launch + d * times().copy * pageable_ + on_gpu(used);
  }

  std::int32_t on_host_ = 0;
  std::int64_t min_batch_;
  std::int64_t pageable_;
};

// ------------------------------------------------------------------------------------------------ 8.1, KTransformers

class KTransformers final : public PlainExpertPolicy {
 public:
  KTransformers(const PlainExpertModel& model, const PlainKTransformers& with)
      : PlainExpertPolicy(model), with_(with), resident_(model.rankings.size()) {
    const std::int64_t all = static_cast<std::int64_t>(with.on_gpu) * model.expert_layers();
    switch (with.placement) {
      case PlainPlacement::uniform:
        for (auto& layer : resident_) {
          for (std::int32_t e = 0; e < with.on_gpu; ++e) layer.insert(e);
        }
        break;
      case PlainPlacement::frequency:
        resident_ = most_popular(model, all);
        break;
      case PlainPlacement::front_loading:
        for (std::int64_t i = 0; i < all; ++i) {
          resident_[static_cast<std::size_t>(i / model.count)].insert(static_cast<std::int32_t>(i % model.count));
        }
        break;
    }
  }

 private:
  std::int64_t after_gate(std::int64_t gate, std::int32_t layer, const PlainExpertStep& step) override {
    const std::vector<ExpertUse>& used = step.used[static_cast<std::size_t>(layer)];
    std::set<std::int32_t>& resident = resident_[static_cast<std::size_t>(layer)];
    if (layer == 0) pending_ = -1;
    if (used.empty()) return gate;
    if (with_.threshold > 0 && step.tokens() > with_.threshold) return prompt(gate, used, resident);

    const bool last = layer + 1 == model_.expert_layers();
    std::vector<ExpertUse> gpu;
    std::vector<ExpertUse> now;
    std::vector<ExpertUse> later;
    long double expected = 0.0L;  // number of deferred experts
    for (const ExpertUse& use : used) {
      if (resident.contains(use.expert)) {
        gpu.push_back(use);
        continue;
      }
      const long double share = last ? 0.0L : static_cast<long double>(with_.deferred) / model_.top_k;
      const long double before = std::floor(expected + 0.5L);
      expected += std::pow(share, static_cast<long double>(use.tokens));
      (std::floor(expected + 0.5L) > before ? later : now).push_back(use);
    }
    counts_.resident += std::ssize(gpu);
    counts_.on_cpu += std::ssize(now) + std::ssize(later);
    counts_.cpu_read += std::ssize(now) + std::ssize(later);
    counts_.deferred += later.empty() ? 0 : 1;
    counts_.all_deferred += !later.empty() && now.empty() && pending_ < 0 ? 1 : 0;
    const std::int64_t t_gpu = gpu.empty() ? 0 : on_gpu(gpu);
    const std::int64_t way = times().sync + times().hidden * step.tokens();
    const bool outputs = !now.empty() || pending_ >= 0;  // that the layer waits for
    const bool sends = outputs || !later.empty();
    if (sends) there_ = std::max(gate, there_) + way;
    const std::int64_t c = std::max(there_, pending_);
    counts_.waited_deferred += pending_ > there_ ? 1 : 0;
    const std::int64_t a = now.empty() ? 0 : times().cpu_start + busy(now);
    const std::int64_t b = later.empty() ? 0 : times().cpu_start + busy(later);
    counts_.cpu_busy += a + b;
    const std::int64_t i = c + a;
    pending_ = later.empty() ? -1 : i + b;
    if (!outputs) return gate + t_gpu;
    (i + way > gate + t_gpu ? counts_.waited_for_cpu : counts_.waited_for_gpu) += 1;
    return std::max(gate + t_gpu, i + way);
  }

  /// Bound by bandwidth up to 4 tokens per expert (step 3).
  std::int64_t busy(const std::vector<ExpertUse>& uses) {
    if (rows_of(uses) <= 4 * std::ssize(uses)) return times().cpu_weights * std::ssize(uses);
    return on_cpu(uses);
  }

  /// Step 5: everything that is not there is copied, then all is computed.
  std::int64_t prompt(std::int64_t gate, const std::vector<ExpertUse>& used, std::set<std::int32_t>& resident) {
    const std::int64_t missing = model_.count - std::ssize(resident);
    ++counts_.prompts;
    for (const ExpertUse& use : used) ++(resident.contains(use.expert) ? counts_.resident : counts_.loaded);
    counts_.demanded += missing;
    if (with_.update) {
      // Most tokens first; of equal ones, the lower number. The slots stay as they are if the prompt used fewer.
      std::vector<std::int64_t> tokens(static_cast<std::size_t>(model_.count));
      for (const ExpertUse& use : used) tokens[static_cast<std::size_t>(use.expert)] = use.tokens;
      std::vector<std::int32_t> order(tokens.size());
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](std::int32_t x, std::int32_t y) {
        return tokens[static_cast<std::size_t>(x)] > tokens[static_cast<std::size_t>(y)];
      });
      order.resize(resident.size());
      if (used.size() >= resident.size()) resident = {order.begin(), order.end()};
    }
    const std::int64_t launches = missing > 0 ? model_.matrices * times().launch : 0;
    return gate + launches + missing * times().copy + on_gpu(used);
  }

  PlainKTransformers with_;
  std::vector<std::set<std::int32_t>> resident_;
  std::int64_t there_ = 0;     // when the last hidden states have come to the CPU
  std::int64_t pending_ = -1;  // f of the layer before: when its deferred experts are done; -1: it has none
};

// -------------------------------------------------------------------------------------------------------- 8.4, Fiddler

class Fiddler final : public PlainExpertPolicy {
 public:
  Fiddler(const PlainExpertModel& model, const PlainFiddler& with)
      : PlainExpertPolicy(model), with_(with), resident_(most_popular(model, with.on_gpu)) {
    if (with_.token_time < 0) with_.token_time = model.times.cpu_weights;
  }

 private:
  std::int64_t after_gate(std::int64_t gate, std::int32_t layer, const PlainExpertStep& step) override {
    const std::vector<ExpertUse>& used = step.used[static_cast<std::size_t>(layer)];
    const std::set<std::int32_t>& resident = resident_[static_cast<std::size_t>(layer)];
    const std::int64_t trans = model_.matrices * times().launch + times().copy * with_.pageable;
    const std::int64_t way = times().sync + times().hidden * step.tokens();
    std::vector<ExpertUse> gpu;
    std::int64_t cpu = 0;
    for (const ExpertUse& use : used) {
      const std::int64_t cpu_lat = with_.token_time * use.tokens;
      const bool copies = with_.published ? 7 * use.tokens >= 70 : cpu_lat > on_gpu(1, use.tokens) + trans;
      if (resident.contains(use.expert) || copies) {
        gpu.push_back(use);
      } else {
        ++counts_.on_cpu;
        ++counts_.cpu_read;
        cpu += cpu_lat;
      }
    }
    const bool calls = gpu.size() < used.size();
    if (calls) cpu += times().cpu_start;
    counts_.cpu_busy += cpu;

    // Side by side, outputs and copies of experts use one link, in the order in which they are ready.
    std::int64_t now = gate;
    const std::int64_t outputs = gate + way + cpu;  // are ready
    std::int64_t back = -1;
    std::int64_t link = gate;
    const auto come_back = [&] { back = link = std::max(link, outputs) + way; };
    for (const ExpertUse& use : gpu) {
      if (resident.contains(use.expert)) {
        ++counts_.resident;
      } else {
        ++counts_.loaded;
        ++counts_.demanded;
        if (calls && with_.overlap && back < 0 && &use != &gpu.front() && outputs <= now) come_back();
        now = link = std::max(now, link) + trans;
      }
      now += on_gpu(1, use.tokens);
    }
    if (!calls) return now;
    if (!with_.overlap) return now + 2 * way + cpu;
    if (back < 0) come_back();
    ++(back > now ? counts_.waited_for_cpu : counts_.waited_for_gpu);
    return std::max(now, back);
  }

  PlainFiddler with_;
  std::vector<std::set<std::int32_t>> resident_;
};

// ---------------------------------------------------------------------------------------------------- 8.3,
// MoE-Infinity

using LayerAndExpert = std::pair<std::int32_t, std::int32_t>;

/// The experts of the first layers, by number.
std::vector<LayerAndExpert> first_of_all(const PlainExpertModel& model, std::int64_t slots) {
  std::vector<LayerAndExpert> first;
  for (std::int32_t layer = 0; layer < model.expert_layers(); ++layer) {
    for (std::int32_t e = 0; e < model.count && std::cmp_less(first.size(), slots); ++e) first.emplace_back(layer, e);
  }
  return first;
}

class MoeInfinity final : public PlainExpertPolicy {
 public:
  MoeInfinity(const PlainExpertModel& model, const PlainMoeInfinity& with) : PlainExpertPolicy(model), with_(with) {
    for (const LayerAndExpert& one : first_of_all(model, with.slots)) cache_[one] = {};
  }

 private:
  struct Slot {
    std::int64_t arrival = 0;
    bool predicted = false;  // it was loaded ahead, and its layer has not come yet
  };

  std::int64_t after_gate(std::int64_t gate, std::int32_t layer, const PlainExpertStep& step) override {
    const std::vector<ExpertUse>& used = step.used[static_cast<std::size_t>(layer)];
    if (used.empty()) return gate;
    load_ahead(gate);
    running_ = layer;
    opened_ = gate;
    predict(step);

    std::vector<ExpertUse> hits;
    std::vector<std::pair<ExpertUse, std::int64_t>> awaited;  // and when they arrive
    std::vector<ExpertUse> misses;
    for (const ExpertUse& use : used) {
      const auto found = cache_.find({layer, use.expert});
      if (found == cache_.end()) {
        misses.push_back(use);
      } else if (found->second.arrival <= gate) {
        hits.push_back(use);
      } else {
        awaited.emplace_back(use, found->second.arrival);
        ++counts_.late;
      }
    }
    for (std::int32_t e = 0; e < model_.count; ++e) {
      const auto found = cache_.find({layer, e});
      if (found == cache_.end() || !found->second.predicted) continue;
      found->second.predicted = false;
      const bool in_use = std::any_of(used.begin(), used.end(), [&](const ExpertUse& use) { return use.expert == e; });
      counts_.unused += in_use ? 0 : 1;
    }
    for (const ExpertUse& use : misses) {
      leave(least(gate));
      ++counts_.evicted;
      link_free_ = std::max(link_free_, gate) + copy_time();
      cache_[{layer, use.expert}] = {link_free_, false};
      awaited.emplace_back(use, link_free_);
      ++counts_.demanded;
    }
    counts_.resident += std::ssize(hits);
    counts_.loaded += std::ssize(awaited);

    std::int64_t now = gate;
    for (const ExpertUse& use : hits) now += on_gpu(1, use.tokens);
    for (const auto& [use, arrival] : awaited) {
      counts_.waited_for_copy += arrival > now ? 1 : 0;
      now = std::max(now, arrival) + on_gpu(1, use.tokens);
    }
    return now;
  }

  [[nodiscard]] std::int64_t copy_time() const { return times().launch * model_.matrices + times().copy; }

  /// The rows of the requests, or of others as long as they are not known, each made to add up to 1.
  void predict(const PlainExpertStep& step) {
    const std::size_t kinds = model_.kinds.size();
    const bool known = running_ + 1 >= with_.matched;
    counts_.mistaken += known || kinds == 1 ? 0 : 1;
    shares_.assign(model_.rankings.size(), std::vector<double>(static_cast<std::size_t>(model_.count)));
    for (std::size_t l = 0; l < shares_.size(); ++l) {
      double sum = 0.0;
      for (std::size_t e = 0; e < shares_[l].size(); ++e) {
        for (std::size_t kind = 0; kind < kinds; ++kind) {
          const std::size_t taken_for = known ? kind : (kind + 1) % kinds;
          shares_[l][e] += step.shares[kind] * model_.kinds[taken_for][l][e];
        }
        sum += shares_[l][e];
      }
      for (double& share : shares_[l]) share = std::round(share / sum * 1e9) / 1e9;
    }
  }
  [[nodiscard]] double share(const LayerAndExpert& one) const {
    return shares_[static_cast<std::size_t>(one.first)][static_cast<std::size_t>(one.second)];
  }
  /// Step 3.
  [[nodiscard]] double worth_keeping(const LayerAndExpert& one) const {
    return (share(one) + 1e-9) * (1.0 - static_cast<double>(one.first) / model_.expert_layers());
  }
  /// Step 1.
  [[nodiscard]] double worth_loading(const LayerAndExpert& one) const {
    return share(one) * (1.0 - static_cast<double>(one.first - running_) / model_.expert_layers());
  }
  /// The expert that leaves at `now`: not one of the running layer, and none that is on its way.
  [[nodiscard]] LayerAndExpert least(std::int64_t now) const {
    LayerAndExpert worst{-1, -1};
    for (const auto& [one, slot] : cache_) {
      if (one.first == running_ || slot.arrival > now) continue;
      // Of equal ones of a layer, the highest number.
      if (worst.first < 0 || worth_keeping(one) <= worth_keeping(worst)) worst = one;
    }
    return worst;
  }
  void leave(const LayerAndExpert& one) {
    counts_.unused += cache_.at(one).predicted ? 1 : 0;
    counts_.left_unused += cache_.at(one).predicted ? 1 : 0;
    cache_.erase(one);
  }

  /// Step 2: what the idle link has started since the last gate, up to `until`.
  void load_ahead(std::int64_t until) {
    if (!with_.ahead) return;
    while (running_ >= 0) {
      const std::int64_t now = std::max(link_free_, opened_);
      if (now > until) return;
      std::vector<LayerAndExpert> wanted;
      for (std::int32_t l = running_ + 1; l < model_.expert_layers(); ++l) {
        for (std::int32_t e = 0; e < model_.count; ++e) {
          if (!cache_.contains({l, e})) wanted.emplace_back(l, e);
        }
      }
      if (wanted.empty()) return;
      std::stable_sort(wanted.begin(), wanted.end(), [&](const LayerAndExpert& a, const LayerAndExpert& b) {
        return worth_loading(a) > worth_loading(b);
      });
      const LayerAndExpert worst = least(now);
      const auto one = std::find_if(wanted.begin(), wanted.end(), [&](const LayerAndExpert& candidate) {
        return worst.first >= 0 && worth_keeping(candidate) > worth_keeping(worst);
      });
      if (one == wanted.end()) {
        ++counts_.not_worth;
        return;
      }
      counts_.passed_over += one != wanted.begin() ? 1 : 0;
      ++counts_.replaced;
      ++counts_.prefetched;
      leave(worst);
      link_free_ = now + copy_time();
      cache_[*one] = {link_free_, true};
    }
  }

  PlainMoeInfinity with_;
  std::map<LayerAndExpert, Slot> cache_;
  std::vector<std::vector<double>> shares_;  // by layer and expert
  std::int32_t running_ = -1;                // layer whose gate was the last
  std::int64_t opened_ = 0;                  // when it opened
  std::int64_t link_free_ = 0;
};

class MoeInfinityPublished final : public PlainExpertPolicy {
 public:
  MoeInfinityPublished(const PlainExpertModel& model, std::int64_t slots) : PlainExpertPolicy(model) {
    for (const LayerAndExpert& one : first_of_all(model, slots)) visits_[one] = 0;
  }

 private:
  std::int64_t after_gate(std::int64_t gate, std::int32_t layer, const PlainExpertStep& step) override {
    const std::vector<ExpertUse>& used = step.used[static_cast<std::size_t>(layer)];
    std::int64_t now = gate;
    std::vector<ExpertUse> misses;
    for (const ExpertUse& use : used) {
      if (visits_.contains({layer, use.expert})) {
        ++visits_[{layer, use.expert}];
        now += on_gpu(1, use.tokens);
        ++counts_.resident;
      } else {
        misses.push_back(use);
      }
    }
    std::int64_t arrival = gate;
    for (const ExpertUse& use : misses) {
      const LayerAndExpert least = least_visited(layer, used);
      visits_.erase(least);
      counts_.evicted_of_layer += least.first == layer ? 1 : 0;
      visits_[{layer, use.expert}] = 1;
      ++counts_.evicted;
      ++counts_.loaded;
      ++counts_.demanded;
      arrival += times().launch * model_.matrices + times().copy;
      counts_.waited_for_copy += arrival > now ? 1 : 0;
      now = std::max(now, arrival) + on_gpu(1, use.tokens);
    }
    return now;
  }

  /// Not one that the running layer uses. The first one, by expert, then by layer.
  [[nodiscard]] LayerAndExpert least_visited(std::int32_t layer, const std::vector<ExpertUse>& used) const {
    LayerAndExpert least{-1, -1};
    for (std::int32_t e = 0; e < model_.count; ++e) {
      for (std::int32_t l = 0; l < model_.expert_layers(); ++l) {
        const bool locked =
            l == layer && std::any_of(used.begin(), used.end(), [&](const ExpertUse& use) { return use.expert == e; });
        if (locked || !visits_.contains({l, e})) continue;
        if (least.first < 0 || visits_.at({l, e}) < visits_.at(least)) least = {l, e};
      }
    }
    return least;
  }

  std::map<LayerAndExpert, std::int64_t> visits_;  // of what is there, since it has come
};

}  // namespace

std::unique_ptr<PlainExpertPolicy> plain_mixtral_paper(const PlainExpertModel& model, std::int32_t slots,
                                                       std::int32_t ahead) {
  return std::make_unique<MixtralPaper>(model, slots, ahead);
}
std::unique_ptr<PlainExpertPolicy> plain_mixtral_published(const PlainExpertModel& model, std::int32_t slots) {
  return std::make_unique<MixtralPublished>(model, slots);
}
std::unique_ptr<PlainExpertPolicy> plain_cache_on_cpu(const PlainExpertModel& model, std::int32_t slots,
                                                      std::int64_t uploads) {
  return std::make_unique<CacheOnCpu>(model, slots, uploads);
}
std::unique_ptr<PlainExpertPolicy> plain_cache_awaited(const PlainExpertModel& model, std::int32_t slots) {
  return std::make_unique<CacheAwaited>(model, slots);
}
std::unique_ptr<PlainExpertPolicy> plain_llama_cpp(const PlainExpertModel& model, std::int32_t layers,
                                                   std::int64_t min_batch, std::int64_t pageable) {
  return std::make_unique<LlamaCpp>(model, layers, min_batch, pageable);
}
std::unique_ptr<PlainExpertPolicy> plain_ktransformers(const PlainExpertModel& model, const PlainKTransformers& with) {
  return std::make_unique<KTransformers>(model, with);
}
std::unique_ptr<PlainExpertPolicy> plain_fiddler(const PlainExpertModel& model, const PlainFiddler& with) {
  return std::make_unique<Fiddler>(model, with);
}
std::unique_ptr<PlainExpertPolicy> plain_moe_infinity(const PlainExpertModel& model, const PlainMoeInfinity& with) {
  return std::make_unique<MoeInfinity>(model, with);
}
std::unique_ptr<PlainExpertPolicy> plain_moe_infinity_published(const PlainExpertModel& model, std::int64_t slots) {
  return std::make_unique<MoeInfinityPublished>(model, slots);
}

}  // namespace spillway::oracle
