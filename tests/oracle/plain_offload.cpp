#include "tests/oracle/plain_offload.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace spillway::oracle {
namespace {

std::int64_t bytes_of(const std::vector<PlainTensor>& tensors) {
  return std::accumulate(tensors.begin(), tensors.end(), std::int64_t{0},
                         [](std::int64_t sum, const PlainTensor& tensor) { return sum + tensor.bytes; });
}

std::int64_t nearest(std::int64_t dividend, std::int64_t divisor) { return (2 * dividend + divisor) / (2 * divisor); }

}  // namespace

PlainUva::PlainUva(PlainOffloadModel model, std::int64_t budget, bool in_place, std::int64_t faster,
                   std::int64_t slower)
    : model_(std::move(model)), host_(model_.tensors.size()), in_place_(in_place), faster_(faster), slower_(slower) {
  for (std::size_t l = 0; l < host_.size(); ++l) {
    for (const PlainTensor& tensor : model_.tensors[l]) {
      if (model_.experts_only && !tensor.experts) continue;
      if (counts_.host >= budget) break;
      host_[l].push_back(tensor);
      counts_.host += tensor.bytes;
    }
    counts_.largest = std::max(counts_.largest, bytes_of(host_[l]));
    counts_.split += !host_[l].empty() && host_[l].size() < model_.tensors[l].size() ? 1 : 0;
  }
  counts_.overshot = counts_.host > budget ? 1 : 0;
  for (const auto& tensors : host_) counts_.unequal += !tensors.empty() && bytes_of(tensors) < counts_.largest ? 1 : 0;
}

std::int64_t PlainUva::iterate(std::int64_t start, std::int64_t used, std::int64_t experts) {
  std::int64_t now = start;
  for (std::size_t l = 0; l < host_.size(); ++l) {
    std::int64_t bytes = 0;
    std::int64_t of_experts = 0;
    for (const PlainTensor& tensor : host_[l]) (tensor.experts ? of_experts : bytes) += tensor.bytes;
    if (in_place_) {
      bytes += nearest(of_experts * used, experts);
      now += nearest(bytes * slower_, faster_);
      counts_.in_part += of_experts > 0 && used < experts ? 1 : 0;
    } else {
      bytes += of_experts;
      now += bytes + model_.launch * std::ssize(host_[l]);
    }
    counts_.copied += bytes;
    now += model_.compute[l];
  }
  return now;
}

PlainPrefetch::PlainPrefetch(PlainOffloadModel model, std::int64_t group, std::int64_t in_group, std::int64_t ahead)
    : model_(std::move(model)), ahead_(ahead) {
  for (std::int64_t l = 0; l < std::ssize(model_.tensors); ++l) {
    if (group == 0 || l % group < group - in_group) continue;
    Layer one{.layer = l};
    for (const PlainTensor& tensor : model_.tensors[static_cast<std::size_t>(l)]) {
      if (model_.experts_only && !tensor.experts) continue;
      one.bytes += tensor.bytes;
      ++one.tensors;
    }
    if (one.tensors == 0) continue;
    counts_.host += one.bytes;
    counts_.largest = std::max(counts_.largest, one.bytes);
    offloaded_.push_back(one);
  }
  const std::int64_t number = std::ssize(offloaded_);
  for (std::int64_t j = 0; j < std::min(number, ahead_); ++j) offloaded_[static_cast<std::size_t>(j)].ready = 0;
  for (const Layer& one : offloaded_) counts_.unequal += one.bytes < counts_.largest ? 1 : 0;
  counts_.turned = number > 0 && number % ahead_ != 0 ? 1 : 0;
  counts_.spare = number > 0 && ahead_ > number ? 1 : 0;
}

std::int64_t PlainPrefetch::iterate(std::int64_t start) {
  std::int64_t now = start;
  std::size_t j = 0;
  for (std::int64_t l = 0; l < std::ssize(model_.compute); ++l) {
    const std::int64_t compute = model_.compute[static_cast<std::size_t>(l)];
    if (j == offloaded_.size() || offloaded_[j].layer != l) {
      now += compute;
      continue;
    }
    const std::int64_t ready = offloaded_[j].ready;
    if (ready > 0) ++(ready > now ? counts_.waited : counts_.arrived);
    now = std::max(now, ready) + compute;
    Layer& next = offloaded_[(j + static_cast<std::size_t>(ahead_)) % offloaded_.size()];
    counts_.queued += link_free_ > now ? 1 : 0;
    link_free_ = std::max(link_free_, now) + model_.launch * next.tensors + next.bytes;
    next.ready = link_free_;
    copies_.push_back({link_free_, next.bytes});
    ++j;
  }
  for (const Copy& copy : copies_) counts_.copied += copy.end <= now ? copy.bytes : 0;
  std::erase_if(copies_, [now](const Copy& copy) { return copy.end <= now; });
  counts_.ran_on += copies_.empty() ? 0 : 1;
  return now;
}

}  // namespace spillway::oracle
